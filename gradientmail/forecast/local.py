"""What a learner of a forecast is and has: its state, its fragments, its mail, its counters."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gradientmail.forecast.trace import Doing


class State(Enum):
    """Where a learner is in its life."""

    AWAY = "away"
    JOINING = "joining"
    TRAINING = "training"
    WAITING = "waiting"
    GONE = "gone"


IDLE = {State.JOINING: Doing.JOINING, State.WAITING: Doing.WAITING, State.AWAY: Doing.AWAY}
"""What a learner does that is there or will be, and does not train."""


class Mail(NamedTuple):
    """A contribution."""

    learner: str
    fragment: int
    base: int
    steps: int
    step_s: float


@dataclass
class Times:
    """Where a learner's time went, in seconds; ``wasted`` and ``carried`` are of ``trained``."""

    trained: float = 0.0
    wasted: float = 0.0
    carried: float = 0.0
    waited: float = 0.0
    joining: float = 0.0
    away: float = 0.0

    def spend(self, doing: Doing, seconds: float) -> None:
        """Enter time in which nothing was trained."""
        match doing:
            case Doing.JOINING:
                self.joining += seconds
            case Doing.WAITING:
                self.waited += seconds
            case _:
                self.away += seconds

    @property
    def useful(self) -> float:
        """Seconds of steps that were used, or are on their way."""
        return self.trained - self.wasted - self.carried

    @property
    def total(self) -> float:
        """Seconds from its joining on, interruptions included."""
        return self.trained + self.waited + self.joining + self.away


@dataclass
class Counts:
    """What a learner did."""

    steps: int = 0
    posted: int = 0
    used: int = 0
    dropped: int = 0
    interruptions: int = 0
    stale_steps: float = 0.0
    aligned: int = 0


@dataclass
class Local:
    """One fragment as this learner has it.

    Attributes:
        share: Its part of the model.
        held: Newest version fetched; the one aligned with is in ``publishing``.
        snapshot: Step at which it was published against the version aligned with.
        posted: Contributions whose fate is not known.
        carried: Steps of contributions that came too late, which the next one holds.
    """

    share: float
    carried: int = 0
    held: int = 0
    snapshot: int | None = None
    posted: list[Mail] = field(default_factory=list)
