"""A simulated process: a clock of its own, pauses, and a death that runs no clean-up code.

    running -- pause --> paused -- its time is over --> running
    running, paused -- kill --> dead: nothing of it runs on, no request of it leaves

Requests already on their way when it dies arrive all the same.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradientmail.clock import Clock

EPOCH_S = 1_800_000_000.0
LATE_WAKE_S = 1e-3
"""A sleeper wakes up to this late, as real ones do."""


@dataclass(frozen=True, kw_only=True)
class ClockError:
    """How a process's clocks go wrong.

    Attributes:
        rate: Seconds its monotonic clock counts in a true one.
        origin_s: What it shows at the start.
        wall_s: How far its wall clock is ahead.
    """

    rate: float = 1.0
    origin_s: float = 0.0
    wall_s: float = 0.0


class Process:
    """One operating-system process.

    Attributes:
        name: Unique in the world: "closer-1#2" is the second life of slot "closer-1".
    """

    def __init__(self, name: str, error: ClockError, rng: random.Random) -> None:
        self.name = name
        self.alive = True
        self.clock = ProcessClock(self, error)
        self.rng = rng
        self._loop = asyncio.get_running_loop()
        self._paused_until = 0.0
        self._deaths: list[Callable[[], object]] = []

    @property
    def now(self) -> float:
        """True time, which no process knows."""
        return self._loop.time()

    def on_death(self, act: Callable[[], object]) -> None:
        """Call ``act`` when the process is killed."""
        self._deaths.append(act)

    def pause(self, seconds: float) -> None:
        """Let nothing of it run for ``seconds``: SIGSTOP, a swap storm, a laptop's lid."""
        self._paused_until = max(self._paused_until, self.now + seconds)

    def kill(self) -> None:
        """SIGKILL."""
        if self.alive:
            self.alive = False
            for act in self._deaths:
                act()

    def require_alive(self) -> None:
        """End what still runs of a dead process, its clean-up code included."""
        if not self.alive:
            raise asyncio.CancelledError

    async def wait(self, seconds: float) -> None:
        """Wait ``seconds`` of true time, and as long as the process is paused."""
        future = self.promise()
        self._loop.call_later(seconds, self.keep, future, None)
        await future

    def promise(self) -> asyncio.Future[Any]:
        """Return a future of this process, for ``keep``."""
        self.require_alive()
        return self._loop.create_future()

    def keep(self, future: asyncio.Future[Any], result: object) -> None:
        """Resolve ``future`` with a value or an exception, once the process runs."""
        if future.done() or not self.alive:
            return
        if self.now < self._paused_until:
            self._loop.call_at(self._paused_until, self.keep, future, result)
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


class ProcessClock(Clock):
    """The clocks one process sees."""

    def __init__(self, process: Process, error: ClockError) -> None:
        self._process = process
        self._error = error

    def now(self) -> float:
        """See ``Clock.now``."""
        return self._error.origin_s + self._error.rate * self._process.now

    def wall(self) -> float:
        """See ``Clock.wall``."""
        return EPOCH_S + self._error.wall_s + self._process.now

    async def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        late_s = self._process.rng.uniform(1e-6, LATE_WAKE_S)
        await self._process.wait(max(0.0, seconds) / self._error.rate + late_s)
