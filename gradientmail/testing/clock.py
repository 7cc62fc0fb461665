"""A clock that moves when the test says so."""

import asyncio
import heapq
from itertools import count

from gradientmail.clock import Clock, SystemClock


async def turn() -> None:
    """Let every other task that is ready take a turn; no time passes."""
    await SystemClock().sleep(0)


class ManualClock(Clock):
    """Time stands still until ``advance``; a sleeper wakes exactly when its time has come.

    Example:
        >>> clock = ManualClock()
        >>> sleeper = asyncio.create_task(clock.sleep(5.0))
        >>> await clock.advance(5.0)
        >>> await sleeper
    """

    def __init__(self, now_s: float = 0.0, *, wall_offset_s: float = 1_800_000_000.0) -> None:
        self._now_s = now_s
        self._wall_offset_s = wall_offset_s
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []
        self._order = count()

    def now(self) -> float:
        """See ``Clock.now``."""
        return self._now_s

    def wall(self) -> float:
        """See ``Clock.wall``."""
        return self._now_s + self._wall_offset_s

    async def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        woken = asyncio.Event()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Move time on, waking sleepers one by one and letting each do what it then does."""
        end_s = self._now_s + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= end_s:
            due_s, _, woken = heapq.heappop(self._sleepers)
            self._now_s = max(self._now_s, due_s)
            woken.set()
            await self._settle()
        self._now_s = end_s

    async def _settle(self) -> None:
        """Give every ready task its turns until the next one waits for time or the world."""
        for _ in range(100):
            await turn()


class SkippingClock(ManualClock):
    """A clock for code that no one else wakes: a sleep takes one turn, and then it is later."""

    async def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        self._now_s += seconds
        await turn()
