"""A store in this process's memory: the reference every other store is compared with."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from gradientmail.store.base import Created, Entry, Fetched, Store, check_key
from gradientmail.store.streams import sink_to


class MemoryStore(Store):
    """A dict. Safe among the tasks and threads of one process."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._creating = threading.Lock()

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        with self._creating:
            if check_key(key) in self._objects:
                return Created.EXISTS
            self._objects[key] = bytes(data)
            return Created.CREATED

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        self._objects[check_key(key)] = b"".join(buffers)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        data = self._objects.get(check_key(key))
        return None if data is None else data[start:end]

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        data = self._objects.get(check_key(key))
        if data is None:
            return None
        with sink_to(path, limit_bytes) as sink:
            sink.write(data)
        return sink.fetched()

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        objects = self._objects.copy()
        keys = sorted(k for k in objects if k.startswith(prefix) and k > after)
        return [Entry(k, len(objects[k]), f"{hash(objects[k]):x}") for k in keys]

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        for key in keys:
            self._objects.pop(check_key(key), None)

    async def close(self) -> None:
        """See ``Store.close``."""
