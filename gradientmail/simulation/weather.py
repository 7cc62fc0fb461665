"""What goes wrong between processes and their store, drawn operation by operation."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Fault(StrEnum):
    """What happens to one operation."""

    REFUSED = "refused"
    """UNKNOWN to the caller, and nothing happened."""
    LOST = "answer-lost"
    """UNKNOWN, and it happened."""
    LATE = "applied-late"
    """UNKNOWN, and it happens 1 to 200 s later."""
    TWICE = "applied-twice"
    """It happens, and up to 60 s later again, as when a proxy repeats a request."""
    REPEATED = "repeated"
    """It happens twice at once, and the second answer is the one that is heard."""
    CONFLICT = "409"
    """UNKNOWN to a create, at once, and nothing happened: two conditional writes met."""
    HIDDEN = "412-under-200"
    """It happens, and the answer is an error under a status of success: UNKNOWN."""
    SLOW = "slow"
    """It takes up to a minute."""
    STALE = "stale"
    """The listing, or the read of a key that is overwritten, is up to 30 s old."""
    PAGE = "page-missing"
    """The listing lacks a stretch."""
    STORM = "storm"
    """503 to most requests, for some minutes."""
    OUTAGE = "outage"
    """No request is answered, for ten minutes."""
    FULL = "disk-full"
    """Nothing can be written, for some minutes."""
    TRUNCATED = "truncated"
    """What is read ends too early, as if that were all."""
    FLIPPED = "flipped"
    """A bit of what is read is another."""
    UNSEEN = "unseen"
    """A new object is not yet read, for up to 30 s."""


_READING = frozenset({"read", "fetch"})
_VIEWING = frozenset({"read", "fetch", "list"})
_WRITING = frozenset({"create", "put", "delete"})
MEETS = {
    Fault.TWICE: _WRITING,
    Fault.REPEATED: _WRITING,
    Fault.LATE: _WRITING,
    Fault.HIDDEN: _WRITING,
    Fault.FULL: frozenset({"create", "put"}),
    Fault.CONFLICT: frozenset({"create"}),
    Fault.STALE: _VIEWING,
    Fault.PAGE: frozenset({"list"}),
    Fault.UNSEEN: _VIEWING,
    Fault.TRUNCATED: _READING,
    Fault.FLIPPED: _READING,
}
"""Which operations a fault can meet, where it is not all of them."""


@dataclass(frozen=True, kw_only=True)
class Spell:
    """A stretch of bad weather.

    Attributes:
        rate: Share of the operations in it that meet the fault.
        process: Whom it meets, by the start of its name.
    """

    fault: Fault
    start_s: float
    end_s: float
    rate: float = 1.0
    process: str = ""

    def meets(self, process: str, now: float) -> bool:
        """Whether an operation of ``process`` at ``now`` is in it."""
        return self.start_s <= now < self.end_s and process.startswith(self.process)


@dataclass(frozen=True, kw_only=True)
class Weather:
    """When which faults happen.

    Attributes:
        rates: Share of operations that meet each fault that is drawn one by one.
        spells: Stretches in which more than that goes wrong.
        calm_after_s: Nothing goes wrong after this instant.
    """

    rates: Mapping[Fault, float] = field(default_factory=dict)
    spells: Sequence[Spell] = ()
    calm_after_s: float = float("inf")

    def draw(self, process: str, operation: str, now: float, rng: random.Random) -> Fault | None:
        """Return what happens to an operation that begins now."""
        if now >= self.calm_after_s:
            return None
        fault = self._drawn(process, now, rng)
        if fault is None or operation not in MEETS.get(fault, (operation,)):
            return None
        return fault

    def _drawn(self, process: str, now: float, rng: random.Random) -> Fault | None:
        for spell in self.spells:
            if spell.meets(process, now) and (spell.rate >= 1.0 or rng.random() < spell.rate):
                return spell.fault
        ticket = rng.random()
        for fault, rate in self.rates.items():
            ticket -= rate
            if ticket < 0.0:
                return fault
        return None
