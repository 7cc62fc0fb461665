"""Time and chance, injected: the only module that reads a clock or the system's entropy."""

import asyncio
import os
import random
import re
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


_WRONG = "GRADIENTMAIL_CLOCK"
_STARTED_AT = time.time()


class SystemClock:
    """The process's real clock; or a wrong one, to test that nothing depends on a right one.

    ``GRADIENTMAIL_CLOCK=OFFSET_S`` or ``OFFSET_SxRATE`` makes it wrong: with ``-1000000x4`` it is
    a million seconds behind and runs four times as fast.

    Raises:
        ValueError: the variable says something else, or a rate of zero.
    """

    def __init__(self) -> None:
        self._offset_s, self._rate = _wrong_by(os.environ.get(_WRONG, "0"))

    def now(self) -> float:
        """See ``Clock.now``."""
        return self._offset_s + self._rate * time.monotonic()

    def wall(self) -> float:
        """See ``Clock.wall``."""
        return _STARTED_AT + self._offset_s + self._rate * (time.time() - _STARTED_AT)

    async def sleep(self, seconds: float) -> None:
        """See ``Clock.sleep``."""
        await asyncio.sleep(seconds / self._rate)


def _wrong_by(text: str) -> tuple[float, float]:
    number = r"\d{1,9}(?:\.\d{1,9})?"
    match = re.fullmatch(rf"([+-]?{number})(?:x({number}))?", text, re.ASCII)
    if match is None or not (rate := float(match[2] or 1)):
        raise ValueError(
            f"{_WRONG} = {text!r}: write seconds, as in 3600, or with a rate: -3600x4"
        )
    return float(match[1]), rate


def thread_cpu_s() -> float:
    """Return the CPU seconds of the calling thread: for measuring, never for waiting."""
    return time.thread_time()


def system_random() -> random.Random:
    """Return a generator seeded from the system's entropy.

    What the outermost layer passes in where tests pass a seed.
    """
    return random.Random(secrets.randbits(128))  # noqa: S311


def fresh_nonce(rng: random.Random) -> str:
    """Return 32 hexadecimal digits no other process draws."""
    return f"{rng.getrandbits(128):032x}"
