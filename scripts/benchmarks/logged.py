"""A store that takes a while and writes down what it is asked."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradientmail.store.base import Created, Entry, Fetched, Store

PAGE_KEYS = 1000
"""Keys in one page of an S3 listing: a longer listing is more than one request."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One request: when it was made, by whom, and how much it moved.

    Attributes:
        found: Entries of a listing; of a read, 1 where there was an object.
    """

    at: float
    what: str
    key: str
    who: str
    size_bytes: int = 0
    found: int = 0

    @property
    def kind(self) -> str:
        """Return what was done to which part of the run: "read commits", "put mail"."""
        part = self.key.partition("/")[0].removesuffix(".json")
        return f"{self.what} {part}"

    @property
    def requests(self) -> int:
        """Return how many requests it is on S3: a listing is one for each page."""
        return max(1, -(-self.found // PAGE_KEYS)) if self.what == "list" else 1


@dataclass
class Log:
    """What was asked, in the order in which it was asked."""

    operations: list[Operation] = field(default_factory=list)

    def of(self, who: str, since: float = 0.0, until: float = float("inf")) -> list[Operation]:
        """Return the operations of those whose name begins with ``who`` in [since, until)."""
        return [
            one for one in self.operations if one.who.startswith(who) and since <= one.at < until
        ]


def by_kind(operations: Iterable[Operation]) -> Counter[str]:
    """Count requests by kind."""
    counts: Counter[str] = Counter()
    for one in operations:
        counts[one.kind] += one.requests
    return counts


def described(operations: Iterable[Operation], per: float = 1.0, most: int = 6) -> str:
    """Say which kinds there were, most frequent first, ``per`` so many rounds or minutes."""
    counts = by_kind(operations).most_common(most)
    return ", ".join(f"{kind} {count / per:.3g}" for kind, count in counts)


class LoggedStore(Store):
    """``inner``, each operation after ``latency_s``, entered in ``log`` under ``who``."""

    def __init__(self, inner: Store, log: Log, who: str, latency_s: float = 0.0) -> None:
        self._inner, self._log, self._who, self._latency_s = inner, log, who, latency_s

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        await self._enter("create", key, len(data))
        return await self._inner.create(key, data)

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._enter("put", key, sum(memoryview(one).nbytes for one in buffers))
        await self._inner.put(key, buffers)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        at = await self._wait()
        data = await self._inner.read(key, start, end)
        self._add(at, "read", key, len(data or b""), int(data is not None))
        return data

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        at = await self._wait()
        fetched = await self._inner.fetch(key, path, limit_bytes=limit_bytes)
        size_bytes = fetched.size_bytes if fetched else 0
        self._add(at, "fetch", key, size_bytes, int(fetched is not None))
        return fetched

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        at = await self._wait()
        entries = await self._inner.list(prefix, after)
        self._add(at, "list", prefix, 0, len(entries))
        return entries

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        doomed = list(keys)
        await self._enter("delete", doomed[0] if doomed else "", 0)
        await self._inner.delete(doomed)

    async def close(self) -> None:
        """See ``Store.close``."""

    async def _enter(self, what: str, key: str, size_bytes: int) -> None:
        self._add(await self._wait(), what, key, size_bytes, 0)

    async def _wait(self) -> float:
        """Wait as long as an operation takes; return when it was asked for."""
        at = asyncio.get_running_loop().time()
        if self._latency_s:
            await asyncio.sleep(self._latency_s)
        return at

    def _add(self, at: float, what: str, key: str, size_bytes: int, found: int) -> None:
        self._log.operations.append(Operation(at, what, key, self._who, size_bytes, found))
