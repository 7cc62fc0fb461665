"""A process that kills itself at one of its store operations: the exact way to try a crash.

``GRADIENTMAIL_CRASH_AT=17`` (or ``17:before``) kills the process with SIGKILL in place of its 17th
operation, ``17:after`` once the 17th is done and before anyone has heard of it. Counted are the
requests of the whole process as the store would see them, in the order in which they begin: each
attempt of a retried operation, and the read that follows an EXISTS. A delete of many keys is one.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from gradientmail.errors import SettingsError
from gradientmail.store.base import Created, Entry, Fetched, Store

CRASH_AT: Final = "GRADIENTMAIL_CRASH_AT"

T = TypeVar("T")

_of_process = count(1)
"""Numbers of this process's operations, over all stores it opens."""


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where to crash: at the ``number``-th operation (the first is 1), before or after it."""

    number: int
    after: bool = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "CrashPoint | None":
        """Return what ``GRADIENTMAIL_CRASH_AT`` says; None when it is not set.

        Raises:
            SettingsError: it says something else than ``n``, ``n:before`` or ``n:after``.
        """
        text = environ.get(CRASH_AT)
        if text is None:
            return None
        number, colon, when = text.partition(":")
        known = when in ("before", "after") if colon else True
        if not (known and number.isascii() and number.isdigit() and int(number)):
            raise SettingsError(
                f"environment: {CRASH_AT} = {text!r}: write the number of a store operation, "
                "1 or more, as in 17, 17:before or 17:after"
            )
        return cls(int(number), after=when == "after")

    def __str__(self) -> str:
        return f"{self.number}:{'after' if self.after else 'before'}"


def kill_myself() -> None:
    """Die here and now, with nothing flushed, closed or released."""
    os.kill(os.getpid(), signal.SIGKILL)


class CrashingStore(Store):
    """``inner``, whose operations are counted; ``crash`` is called at ``point``.

    Example:
        >>> store = CrashingStore(MemoryStore(), CrashPoint(17, after=True))
    """

    def __init__(
        self,
        inner: Store,
        point: CrashPoint,
        *,
        crash: Callable[[], None] = kill_myself,
        numbers: "count[int]" = _of_process,
    ) -> None:
        self._inner = inner
        self._point = point
        self._crash = crash
        self._numbers = numbers

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        return await self._counted(partial(self._inner.create, key, data))

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._counted(partial(self._inner.put, key, buffers))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        return await self._counted(partial(self._inner.read, key, start, end))

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        return await self._counted(partial(self._inner.fetch, key, path, limit_bytes=limit_bytes))

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        return await self._counted(partial(self._inner.list, prefix, after))

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        await self._counted(partial(self._inner.delete, keys))

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._inner.close()

    async def _counted(self, apply: Callable[[], Awaitable[T]]) -> T:
        here = next(self._numbers) == self._point.number
        if here and not self._point.after:
            self._crash()
        try:
            return await apply()
        finally:
            if here and self._point.after:
                self._crash()
