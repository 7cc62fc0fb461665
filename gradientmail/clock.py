"""Time and chance, injected: the only module that reads a clock or the system's entropy."""

import asyncio
import random
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on one process's monotonic clock, and a sleep on it."""

    def now(self) -> float:
        """Return seconds since an arbitrary origin; never decreases."""
        ...

    def wall(self) -> float:
        """Return POSIX seconds, for people to read: no decision may depend on it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend the caller for ``seconds``."""
        ...


class SystemClock:
    """The process's real clock."""

    def now(self) -> float:
        """See ``Clock.now``."""
        return time.monotonic()

    def wall(self) -> float:
        """See ``Clock.wall``."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        await asyncio.sleep(seconds)


def system_random() -> random.Random:
    """Return a generator seeded from the system's entropy.

    What the outermost layer passes in where tests pass a seed.
    """
    return random.Random(secrets.randbits(128))  # noqa: S311


def fresh_nonce(rng: random.Random) -> str:
    """Return 32 hexadecimal digits no other process draws."""
    return f"{rng.getrandbits(128):032x}"
