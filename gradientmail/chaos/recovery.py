"""How soon a run goes on after a fault, and how soon it should."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from gradientmail.config import RunSettings
from gradientmail.records.estimates import Estimates


@dataclass(slots=True)
class Recoveries:
    """From each fault to the next commit of any fragment.

    Of several faults between two commits only the last one counts: before it the run had no
    chance to go on.

    Attributes:
        faults: How many there were.
        seconds: Of those that were followed by a commit.
        gaps: Seconds between two commits without a fault between.
    """

    faults: int = 0
    seconds: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    _pending_at: float | None = None
    _committed_at: float | None = None

    def fault(self, now: float) -> None:
        """Something was broken, or is whole again after it was broken for long."""
        self.faults += 1
        self._pending_at = now

    def commit(self, now: float) -> None:
        """A round was closed."""
        if self._pending_at is not None:
            self.seconds.append(now - self._pending_at)
        elif self._committed_at is not None:
            self.gaps.append(now - self._committed_at)
        self._pending_at, self._committed_at = None, now


def promised_s(
    settings: RunSettings, estimates: Estimates, *, start_s: float, round_s: float
) -> float:
    """Return T: within it the next round closes after a fault, if no other one comes.

    The sum of all that may have to pass, one after another::

        start_s                      a process is started again and has joined
        lease_s * 5/4 + lease_s / 4  no beat for lease_s, looked at four times per lease
        presence_s * 9/8             a learner that does not come back is given up
        timeout                      max(30 poll_s, 3 (step_s + quorum_s + sync_s)): below quorum
        grace_s                      the grace window
        2 poll_s + round_s           a round as it is when nothing happens

    Args:
        settings: The run's.
        estimates: Of its newest commit.
        start_s: From starting a learner to its first presence, as measured here.
        round_s: Longest time between two commits of an undisturbed run, as measured here.
    """
    return (
        start_s
        + 1.5 * settings.lease_s
        + 1.125 * settings.presence_s
        + estimates.timeout(settings.poll_s)
        + (settings.grace_s or 0.0)
        + 2 * settings.poll_s
        + round_s
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Half, nearly all and all of some seconds are at most these."""

    p50_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Spread | None":
        """Return the spread of ``seconds``; None of none.

        >>> Spread.of([3.0, 1.0, 2.0])
        Spread(p50_s=2.0, p99_s=3.0, max_s=3.0)
        """
        if not seconds:
            return None
        ordered = sorted(seconds)
        rank = -(-99 * len(ordered) // 100)  # the nearest rank: no value that was not measured
        return cls(median(ordered), ordered[rank - 1], ordered[-1])
