"""Looks at the store that find nothing need no event: only their number, and when the next one is.

A reader looks again and again, by what ``protocol.polling`` predicts. Only the look that finds
something matters. Those before it are counted: by their rate while nothing is due, then one by
one.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

Wait = Callable[[float, float], float]
"""Takes the instant at which a look ended and a number in [0, 1); returns the seconds until the
next one begins."""

ONE_BY_ONE: Final = 24
"""Looks about when something is due; later ones are counted by their rate again."""

LONG_BEFORE_S: Final = 1e7
"""So long before anything is due that only the longest wait bounds a wait."""

NEAR: Final = 3
"""Longest waits before something is due from which on looks are counted one by one."""


@dataclass
class Pace:
    """The looks of one reader at one thing.

    Attributes:
        takes_s: Seconds that a look takes.
        looks: How many there were.
        looked_at: When the last one ended.
        gap_s: From the look before to the one that was noted last.
    """

    rng: random.Random
    takes_s: float = 0.0
    looks: float = 0.0
    looked_at: float = 0.0
    gap_s: float = 0.0
    _noted: bool = field(default=False, repr=False)

    def first(self, now: float) -> float:
        """Begin to look: at once."""
        self.looked_at, self._noted = now, True
        self.looks += 1
        return now

    def looked(self, now: float) -> None:
        """The look that was noted ends at ``now``."""
        self.looked_at, self._noted = now, False

    def next_look(self, now: float, due: float, wait: Wait) -> float | None:
        """Return when the first look at or after ``now`` begins; None when it was noted before.

        Args:
            now: Seconds.
            due: When something is due, and looks begin to come at a quicker pace.
            wait: The waits between looks as they are now.
        """
        if self._noted:
            return None
        self._noted = True
        before, begins = self._skipped(now, due, wait)
        self.looks += 1
        self.gap_s = begins - before
        return max(now, begins)

    def catch_up(self, now: float, due: float, wait: Wait) -> None:
        """Count the looks up to ``now``: the waits between them change, or the reader stops."""
        if not self._noted and now > self.looked_at:
            self.looked_at, _ = self._skipped(now, due, wait)

    def _skipped(self, now: float, due: float, wait: Wait) -> tuple[float, float]:
        """Count the looks that begin before ``now``; return when the last ended, and the next."""
        at = self._leapt(self.looked_at, min(now, due), self._paced(wait, -LONG_BEFORE_S), NEAR)
        begins = at + wait(at, self.rng.random())
        for _ in range(ONE_BY_ONE):
            if begins >= now:
                return at, begins
            self.looks += 1
            at = begins + self.takes_s
            begins = at + wait(at, self.rng.random())
        at = self._leapt(at, now, self._paced(wait, at), 0)
        return at, at + wait(at, self.rng.random())

    def _paced(self, wait: Wait, at: float) -> float:
        return self.takes_s + wait(at, 0.5)

    def _leapt(self, at: float, end: float, pace_s: float, near: int) -> float:
        """Leap over looks ``pace_s`` apart, until at most ``near`` of them are left to ``end``."""
        leaps = int(max(0.0, (end - at) / pace_s - near))
        self.looks += leaps
        return at + leaps * pace_s
