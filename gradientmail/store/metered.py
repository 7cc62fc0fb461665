"""What a store is asked to do, counted: requests by name and bytes each way."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradientmail.store.base import Created, Entry, Fetched, Store


@dataclass(slots=True)
class Meter:
    """Running totals. ``snapshot`` a meter before a stretch to learn what the stretch cost.

    Attributes:
        calls: how often each operation was asked for, retries counted.
        up_bytes: bytes given to ``create`` and ``put``.
        down_bytes: bytes got from ``read`` and ``fetch``.
    """

    calls: Counter[str] = field(default_factory=Counter)
    up_bytes: int = 0
    down_bytes: int = 0

    @property
    def requests(self) -> int:
        """Return the number of operations of all kinds."""
        return self.calls.total()

    def snapshot(self) -> "Meter":
        """Return a copy that stays as it is."""
        return Meter(self.calls.copy(), self.up_bytes, self.down_bytes)


class MeteredStore(Store):
    """``inner``, with every operation entered in ``meter``."""

    def __init__(self, inner: Store, meter: Meter) -> None:
        self._inner = inner
        self.meter = meter

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        self.meter.calls["create"] += 1
        self.meter.up_bytes += len(data)
        return await self._inner.create(key, data)

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        self.meter.calls["put"] += 1
        self.meter.up_bytes += sum(memoryview(buffer).nbytes for buffer in buffers)
        await self._inner.put(key, buffers)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        self.meter.calls["read"] += 1
        data = await self._inner.read(key, start, end)
        self.meter.down_bytes += len(data or b"")
        return data

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        self.meter.calls["fetch"] += 1
        fetched = await self._inner.fetch(key, path, limit_bytes=limit_bytes)
        self.meter.down_bytes += fetched.size_bytes if fetched else 0
        return fetched

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        self.meter.calls["list"] += 1
        return await self._inner.list(prefix, after)

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        self.meter.calls["delete"] += 1
        await self._inner.delete(keys)

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._inner.close()
