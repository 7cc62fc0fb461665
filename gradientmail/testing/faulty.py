"""A store that fails as real ones do, when its plan says so.

    store = FaultyStore(MemoryStore(), once("create", Fault.LOSE_ANSWER))

reads: once, a create is applied and its answer lost.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import TypeVar

from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store.base import Created, Entry, Fetched, Store

T = TypeVar("T")


class Fault(Enum):
    """What goes wrong with one operation."""

    NOT_APPLIED = auto()
    """The caller gets UNKNOWN, and nothing happened (a 503, a reset on the way in)."""
    LOSE_ANSWER = auto()
    """The caller gets UNKNOWN, and it happened (a timeout, a reset on the way out)."""
    APPLY_LATE = auto()
    """The caller gets UNKNOWN, and it happens just before the store's next operation."""
    DENY = auto()
    """The caller is refused (a 403)."""


Plan = Callable[[str, str], Fault | None]
"""Asked before each operation with its name and its key or prefix: what is to go wrong?"""


def healthy(operation: str, key: str) -> Fault | None:  # noqa: ARG001
    """Nothing goes wrong."""
    return None


def times(count: int, operation: str, fault: Fault) -> Plan:
    """``fault`` happens to the first ``count`` calls of ``operation``, and nothing after."""
    left = count

    def plan(called: str, key: str) -> Fault | None:  # noqa: ARG001
        nonlocal left
        if called != operation or not left:
            return None
        left -= 1
        return fault

    return plan


once = partial(times, 1)


def always(operation: str, fault: Fault, prefix: str = "") -> Plan:
    """``fault`` happens to every call of ``operation`` on keys that start with ``prefix``."""
    return lambda called, key: fault if called == operation and key.startswith(prefix) else None


def randomly(rng: random.Random, rates: Mapping[Fault, float]) -> Plan:
    """Each fault happens to any operation with its rate."""
    faults = [*rates, None]
    weights = [*rates.values(), 1.0 - sum(rates.values())]
    return lambda _operation, _key: rng.choices(faults, weights)[0]


class FaultyStore(Store):
    """``inner``, with the faults of ``plan``, which a test may exchange at any time."""

    def __init__(self, inner: Store, plan: Plan = healthy) -> None:
        self._inner = inner
        self._late: list[Callable[[], Awaitable[object]]] = []
        self.plan = plan

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        return await self._meet("create", key, partial(self._inner.create, key, data))

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._meet("put", key, partial(self._inner.put, key, buffers))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        return await self._meet("read", key, partial(self._inner.read, key, start, end))

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        fetch = partial(self._inner.fetch, key, path, limit_bytes=limit_bytes)
        return await self._meet("fetch", key, fetch)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        return await self._meet("list", prefix, partial(self._inner.list, prefix, after))

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``. The plan is asked with the first key."""
        keys = list(keys)
        await self._meet("delete", next(iter(keys), ""), partial(self._inner.delete, keys))

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._inner.close()

    async def _meet(self, operation: str, key: str, apply: Callable[[], Awaitable[T]]) -> T:
        late, self._late = self._late, []
        for apply_now in late:
            await apply_now()
        fault = self.plan(operation, key)
        if fault is None:
            return await apply()
        if fault is Fault.DENY:
            raise StoreAccessError(f"{operation} {key!r}: 403 by plan")
        if fault is Fault.LOSE_ANSWER:
            await apply()
        elif fault is Fault.APPLY_LATE:
            self._late.append(apply)
        raise StoreUnavailableError(f"{operation} {key!r}: {fault.name} by plan")
