"""A store in this process's memory: the reference every other store is compared with."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from gradientmail.errors import PayloadError
from gradientmail.store.base import Created, Entry, Fetched, Store


class MemoryStore(Store):
    """A dict; safe within one event loop, because no operation awaits."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        if key in self._objects:
            return Created.EXISTS
        self._objects[key] = bytes(data)
        return Created.CREATED

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        self._objects[key] = b"".join(buffers)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        data = self._objects.get(key)
        return None if data is None else data[start:end]

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        data = self._objects.get(key)
        if data is None:
            return None
        if len(data) > limit_bytes:
            raise PayloadError(f"{len(data)} bytes where at most {limit_bytes} may be")
        path.write_bytes(data)
        return Fetched(len(data), f"xxh3_128:{xxhash.xxh3_128_hexdigest(data)}")

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        keys = sorted(k for k in self._objects if k.startswith(prefix) and k > after)
        return [Entry(k, len(data := self._objects[k]), xxhash.xxh3_128_hexdigest(data)) for k in keys]

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        for key in keys:
            self._objects.pop(key, None)

    async def close(self) -> None:
        """See ``Store.close``."""
