"""What the picture is drawn from: who did what, from when to when."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Doing(StrEnum):
    """What a learner is doing."""

    JOINING = "joining"
    TRAINING = "training"
    WAITING = "waiting"
    AWAY = "interrupted"
    UPLOADING = "uploading"
    FETCHING = "fetching"


class Span(NamedTuple):
    """One learner, doing one thing."""

    learner: str
    doing: Doing
    start_s: float
    end_s: float


class Closed(NamedTuple):
    """A round that was closed, and how many contributions it holds."""

    at_s: float
    fragment: int
    contributions: int


@dataclass
class Trace:
    """Spans of the learners to be shown, and rounds; nothing of what begins later.

    Attributes:
        shown: Names of the learners of whom spans are kept.
        until_s: How far to keep anything.
    """

    shown: frozenset[str] = frozenset()
    until_s: float = 0.0
    spans: list[Span] = field(default_factory=list)
    closed: list[Closed] = field(default_factory=list)

    def span(self, learner: str, doing: Doing, start_s: float, end_s: float) -> None:
        """Keep a span, if its learner is shown."""
        if learner in self.shown and start_s < self.until_s and end_s > start_s:
            self.spans.append(Span(learner, doing, start_s, min(end_s, self.until_s)))

    def close(self, at_s: float, fragment: int, contributions: int) -> None:
        """Keep a round."""
        if self.shown and at_s < self.until_s:
            self.closed.append(Closed(at_s, fragment, contributions))
