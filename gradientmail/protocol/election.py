"""Who closes now: candidate and holder of the lease as values.

The lease only saves work: two holders cost one wasted aggregation, never a wrong byte, so nothing
here has to be safe, and every clock is its process's own. A candidate::

    watching -- no term was ever taken, or the newest is released --> stand
    watching -- another term, another beat, or a stall of our own --> watching, from this look on
    watching -- the same beat for lease_s, over four looks ---------> stand

A holder::

    holding  -- lease_s / 5 since the last renewal -----------------> beat
    holding  -- lease_s * 3 / 4 since then, or a newer term exists -> step down

A holder gives up before a candidate can have waited long enough, so a change of hands rarely
overlaps.
"""

from dataclasses import dataclass, replace
from typing import Final

LOOKS_TO_EXPIRE: Final = 4
BEATS_PER_LEASE: Final = 5
LOOKS_PER_LEASE: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What one look at the lease saw, at instant ``now``.

    Attributes:
        now: Seconds on the candidate's clock; never less than in the look before.
        term: Newest term taken; 0 when none ever was.
        beat: Its beat, as anything that differs from beat to beat; None before the first.
        released: Whether that beat is the holder's last word.
    """

    now: float
    term: int
    beat: str | None
    released: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """Come back by ``until`` (seconds, one's own clock)."""

    until: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Stand:
    """Try to create ``term``; whoever creates it holds the lease."""

    term: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Watcher:
    """A candidate: watches the newest term until its holder is gone.

    Attributes:
        lease_s: How long a silent holder keeps the lease.
        first: The look that began the observation; None when the next look does.
        looked_at: Instant of the newest look.
        looks: Looks in the observation, the first included.
    """

    lease_s: float
    first: Look | None = None
    looked_at: float = 0.0
    looks: int = 0

    def observe(self, look: Look) -> tuple["Watcher", Wait | Stand]:
        """Fold one look and decide; equal arguments give equal results."""
        watcher = self._folded(look)
        if look.term == 0 or look.released or watcher.expired:
            return Watcher(lease_s=self.lease_s), Stand(term=look.term + 1)
        return watcher, Wait(until=look.now + self.lease_s / LOOKS_PER_LEASE)

    @property
    def expired(self) -> bool:
        """Whether the holder is gone, for all that this candidate saw."""
        return (
            self.first is not None
            and self.looks >= LOOKS_TO_EXPIRE
            and self.looked_at - self.first.now >= self.lease_s
        )

    def _folded(self, look: Look) -> "Watcher":
        stalled = look.now - self.looked_at > self.lease_s / 2
        first = self.first
        if first is None or stalled or (first.term, first.beat) != (look.term, look.beat):
            return Watcher(lease_s=self.lease_s, first=look, looked_at=look.now, looks=1)
        return replace(self, looked_at=look.now, looks=self.looks + 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """Write the next beat now; once it is acknowledged, ``Holder.renewed``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepDown:
    """Start no further round; ``reason`` is for people."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """The closer that holds ``term``.

    Attributes:
        renewed_at: Instant on the holder's clock at which it began to write its newest
            acknowledged beat, or to create the term.
    """

    term: int
    lease_s: float
    renewed_at: float

    def decide(self, now: float, newest_term: int) -> Wait | Beat | StepDown:
        """Say what is due at ``now``, given the newest term that was seen."""
        if newest_term > self.term:
            return StepDown(reason=f"term {newest_term} was taken while we held {self.term}")
        silent_s = now - self.renewed_at
        if silent_s >= self.lease_s * 3 / 4:
            return StepDown(reason=f"could not renew term {self.term} for {silent_s:.1f} s")
        due = self.renewed_at + self.lease_s / BEATS_PER_LEASE
        return Beat() if now >= due else Wait(until=due)

    def renewed(self, began_at: float) -> "Holder":
        """Take note that the beat whose write began at ``began_at`` was acknowledged."""
        return replace(self, renewed_at=began_at)
