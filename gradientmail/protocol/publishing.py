"""What a learner does at a step boundary: publish a round, wait for a commit, or train on.

A learner goes through the rounds in order, never the same fragment twice at once::

    training  -- round due, and room in flight -->              Publish(round)
    training  -- overlap spent on the oldest round in flight -> Hold until it is committed
    training  -- otherwise ------------------------------------> Train

Its next round is the one after its last, or the oldest open one when others are ahead. It is due
``gap(r)`` local steps after the last one, or at once while the closer calls it, if there is a step
to post. Only what was trained against the newest commit the learner knows is ever posted, and
against one commit only once, for the fragment is then in flight until the next.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from gradientmail.protocol.pace import local_steps
from gradientmail.protocol.schedule import RoundSchedule


@dataclass(frozen=True, slots=True)
class Publish:
    """Post the pseudo-gradient of the fragment this round targets."""

    round_index: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Train no further until one of the rounds in flight is resolved."""


@dataclass(frozen=True, slots=True)
class Train:
    """Take the next inner step."""


Decision = Publish | Hold | Train


@dataclass(frozen=True, kw_only=True, slots=True)
class InFlight:
    """One published round whose commit has not been aligned with yet.

    Attributes:
        round_index: The round.
        at_step: Local step count at which it was published.
    """

    round_index: int
    at_step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Publishing:
    """A learner's position in the schedule. All counts are its own inner steps.

    Attributes:
        schedule: The run's.
        versions: Version of each fragment the learner is aligned with.
        anchored_at: Step at which each fragment's anchor was taken, less what an alignment kept.
        last_step: Step at which it last published; where training began, before that.
        in_flight: Rounds outstanding.
        step_s: Seconds its steps take, where it is to keep pace with the fastest learner's; 0.0
            where it takes every step of the schedule.
        fastest_step_s: Seconds that those of the fastest take.
    """

    schedule: RoundSchedule
    versions: tuple[int, ...]
    anchored_at: tuple[int, ...]
    last_step: int = 0
    in_flight: tuple[InFlight, ...] = field(default=())
    step_s: float = 0.0
    fastest_step_s: float = 0.0

    def next_round(self) -> int:
        """Return ``max(last published + 1, oldest open round)``, past what others have closed.

        In other words the oldest round that is neither closed nor in flight. After its flight a
        fragment comes again in the next cycle: until then no round behind that overtakes it.
        """
        flying = {flight.round_index for flight in self.in_flight}
        opened = open_rounds(self.schedule, self.versions)
        return min(r + self.schedule.fragments if r in flying else r for r in opened)

    def decide(
        self,
        step: int,
        calling: AbstractSet[int] = frozenset(),
        asked: AbstractSet[int] | None = None,
    ) -> Decision:
        """Return what to do now.

        Args:
            step: Inner steps taken so far.
            calling: Rounds the closer calls.
            asked: Rounds that ask for this learner; None: all do. It sits out the others, and
                holds until they are committed: what it trained meanwhile would be lost.
        """
        round_index = self.next_round()
        if self._can_publish(round_index, step) and self._is_due(round_index, step, calling):
            takes_part = asked is None or round_index in asked
            return Publish(round_index) if takes_part else Hold()
        overlap = self.schedule.overlap_steps
        if overlap is None or not self.in_flight:
            return Train()
        oldest = min(flight.at_step for flight in self.in_flight)
        return Hold() if step - oldest >= overlap else Train()

    def steps_to_due(self, step: int) -> int:
        """Return the steps after inner step ``step`` until the next round is due, uncalled."""
        return max(0, self.last_step + self.gap(self.next_round()) - step)

    def paced(self, step_s: float, fastest_step_s: float) -> "Publishing":
        """Return the state in which it keeps pace with the fastest learner's step time."""
        return replace(self, step_s=step_s, fastest_step_s=fastest_step_s)

    def gap(self, round_index: int) -> int:
        """Return the steps it trains for a round: the schedule's, fewer where it is slow."""
        return local_steps(self.schedule.gap(round_index), self.step_s, self.fastest_step_s)

    def published(self, round_index: int, step: int) -> "Publishing":
        """Return the state after publishing ``round_index`` at ``step``."""
        flight = InFlight(round_index=round_index, at_step=step)
        return replace(
            self,
            last_step=step,
            in_flight=(*self.in_flight, flight),
        )

    def withdrawn(self, round_index: int) -> "Publishing":
        """Return the state after ``round_index`` turned out not to be sent: it is open again."""
        rest = tuple(f for f in self.in_flight if f.round_index != round_index)
        return replace(self, in_flight=rest)

    def sat_out(self, step: int) -> "Publishing":
        """Return the state after a round passed without this learner: the next is a gap away."""
        return replace(self, last_step=step)

    def reanchored(self, step: int) -> "Publishing":
        """Return the state after going back to all anchors: no step up to ``step`` is left."""
        return replace(self, anchored_at=(step,) * len(self.anchored_at))

    def aligned(self, fragment: int, version: int, anchored_at: int) -> "Publishing":
        """Return the state after aligning ``fragment`` with ``version``: its round is resolved."""
        resolved = self.schedule.fragment_of
        return replace(
            self,
            versions=_put(self.versions, fragment, version),
            anchored_at=_put(self.anchored_at, fragment, anchored_at),
            in_flight=tuple(f for f in self.in_flight if resolved(f.round_index) != fragment),
        )

    def _can_publish(self, round_index: int, step: int) -> bool:
        """Whether there is a step to post, room in flight, and the base is the round's."""
        return (
            step > self.anchored_at[self.schedule.fragment_of(round_index)]
            and len(self.in_flight) < self.schedule.in_flight
            and self._version(round_index) == self.schedule.version_after(round_index) - 1
        )

    def _version(self, round_index: int) -> int:
        return self.versions[self.schedule.fragment_of(round_index)]

    def _is_due(self, round_index: int, step: int, calling: AbstractSet[int]) -> bool:
        return round_index in calling or self.steps_to_due(step) == 0


def oldest_open_round(schedule: RoundSchedule, versions: Sequence[int]) -> int:
    """Return the first round of the schedule that is not committed, given every newest version."""
    return min(open_rounds(schedule, versions))


def open_rounds(schedule: RoundSchedule, versions: Sequence[int]) -> list[int]:
    """Return of each fragment the round that is to be closed next, given every newest version."""
    return [schedule.round_of(fragment, version + 1) for fragment, version in enumerate(versions)]


def _put(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])
