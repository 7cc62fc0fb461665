"""The spool: local files of the payloads a closer works on, each fetched and checked once."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gradientmail.errors import RecordError
from gradientmail.records.manifest import PayloadRef
from gradientmail.store.base import Fetched, Store

Offload = Callable[..., Awaitable[Any]]
"""Runs a long function off the event loop: ``asyncio.to_thread``, or inline in a simulation."""


class Spool:
    """Files under ``directory``, one per object; the caller drops what it no longer needs."""

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory = directory
        self._store = store
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Return where the object ``key`` lies, or would."""
        return self._directory / key.replace("/", "_")

    async def fetch(self, key: str, *, limit_bytes: int) -> Fetched | None:
        """Bring an object in; None when there is none. Its digest is for the caller to judge."""
        return await self._store.fetch(key, self.path(key), limit_bytes=limit_bytes)

    async def payload(self, ref: PayloadRef) -> Path:
        """Return the file of a committed payload, fetched unless it is here already.

        Raises:
            RecordError: it is missing, or is not what the record says: the run is damaged.
        """
        path = self.path(ref.key)
        if path.exists():
            return path
        part = path.with_suffix(".part")
        fetched = await self._store.fetch(ref.key, part, limit_bytes=ref.size_bytes)
        if fetched is None:
            raise RecordError(ref.key, "a committed payload is missing from the store")
        if (fetched.size_bytes, fetched.digest) != (ref.size_bytes, ref.digest):
            raise RecordError(ref.key, "a committed payload differs from its record's digest")
        return part.rename(path)

    def drop(self, *keys: str) -> None:
        """Forget objects."""
        for key in keys:
            self.path(key).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget everything: what a predecessor left here may be torn."""
        for path in self._directory.iterdir():
            path.unlink()
