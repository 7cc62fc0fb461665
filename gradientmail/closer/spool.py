"""The spool: local files of the payloads a closer works on, each fetched and checked once."""

import asyncio
import itertools
import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash

from gradientmail.codecs.streaming import FileTarget
from gradientmail.errors import PayloadError, RecordError
from gradientmail.records.manifest import PayloadRef
from gradientmail.store.base import Fetched, Store

_HASH_STEP_BYTES = 1 << 20

FETCHED_AT_ONCE = 16
"""Objects on their way from the store at the same time, of all fragments together."""


class Spool:
    """Files under ``directory``, one per object; the caller drops what it no longer needs."""

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory = directory
        self._store = store
        self._attempts = itertools.count()
        self._seats = asyncio.Semaphore(FETCHED_AT_ONCE)
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Return where the object ``key`` lies, or would."""
        return self._directory / key.replace("/", "_")

    async def fetch(self, key: str, *, limit_bytes: int) -> Fetched | None:
        """Bring an object in; None when there is none. Its digest is for the caller to judge."""
        part = self._part(key)
        async with self._seats:
            fetched = await self._store.fetch(key, part, limit_bytes=limit_bytes)
        if fetched is not None:
            part.rename(self.path(key))
        return fetched

    async def payload(self, ref: PayloadRef) -> Path:
        """Return the file of a committed payload, fetched unless it is here already.

        Raises:
            RecordError: it is missing, or is not what the record says: the run is damaged.
        """
        path = self.path(ref.key)
        if path.exists():
            return path
        part, fetched = await self._attempt(ref)
        while (fetched.size_bytes, fetched.digest) != (ref.size_bytes, ref.digest):
            part.unlink()
            before = fetched
            part, fetched = await self._attempt(ref)
            if fetched == before:  # else it was damaged on its way
                reason = "a committed payload differs from its record's digest"
                raise RecordError(ref.key, reason)
        return part.rename(path)

    async def _attempt(self, ref: PayloadRef) -> tuple[Path, Fetched]:
        part = self._part(ref.key)
        try:
            async with self._seats:
                fetched = await self._store.fetch(ref.key, part, limit_bytes=ref.size_bytes)
        except PayloadError as exc:
            raise RecordError(ref.key, f"a committed payload has grown: {exc}") from exc
        if fetched is None:
            raise RecordError(ref.key, "a committed payload is missing from the store")
        return part, fetched

    def drop(self, *keys: str) -> None:
        """Forget objects."""
        for key in keys:
            self.path(key).unlink(missing_ok=True)

    def keep_only(self, keep: Iterable[str], *, under: Sequence[str]) -> None:
        """Forget every object under these prefixes but ``keep``, and what never became one."""
        kept = {self.path(key).name for key in keep}
        prefixes = tuple(self.path(prefix).name for prefix in under)
        for name in os.listdir(self._directory):  # noqa: PTH208 - names: a path each took longer
            if name.startswith(prefixes) and name not in kept:
                (self._directory / name).unlink(missing_ok=True)

    def _part(self, key: str) -> Path:
        """Return where to fetch to: no attempt that was given up can spoil the next one."""
        return self.path(f"{key}.{next(self._attempts)}.part")


class HashedFile(FileTarget):
    """A file that is hashed as it is written, from any thread; a context manager.

    What comes in the order of its bytes is hashed while it is in cache; what came before its turn
    is read back when that comes.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._hash = xxhash.xxh3_128()
        self._hashed_bytes = 0
        self._early: dict[int, int] = {}

    def write_at(self, offset: int, data: memoryview) -> None:
        """See ``Target``."""
        super().write_at(offset, data)
        with self._lock:
            if offset == self._hashed_bytes:
                self._hash.update(data)
                self._hashed_bytes += len(data)
            else:
                self._early[offset] = len(data)
            while length := self._early.pop(self._hashed_bytes, 0):
                self._read_back(length)

    def digest(self) -> str:
        """Return the digest of all that was written, without holes, as records write it."""
        return f"xxh3_128:{self._hash.hexdigest()}"

    def _read_back(self, length: int) -> None:
        buffer = memoryview(bytearray(min(length, _HASH_STEP_BYTES)))
        end = self._hashed_bytes + length
        while self._hashed_bytes < end:
            part = buffer[: end - self._hashed_bytes]
            count = os.preadv(self._fd, [part], self._hashed_bytes)
            self._hash.update(part[:count])
            self._hashed_bytes += count


def file_digest(path: Path, start: int = 0) -> str:
    """Return the digest of a file's bytes from ``start`` on, as records write it."""
    state = xxhash.xxh3_128()
    buffer = memoryview(bytearray(_HASH_STEP_BYTES))
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while count := file.readinto(buffer):
            state.update(buffer[:count])
    return f"xxh3_128:{state.hexdigest()}"
