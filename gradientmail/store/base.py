"""The store: bytes by key, six operations, and exactly what a store must promise.

1. ``create`` is atomic: of any number of concurrent calls on one key, at most one returns
   ``CREATED``, and the object never changes afterwards.
2. An object whose ``create`` or ``put`` was acknowledged becomes visible and stays until deleted.

Not promised: that a listing is fresh, that a delete has happened, the order of unrelated
operations, a clock. ``gradientmail.testing.stores`` checks the promises on any store.

Every operation may raise ``StoreUnavailableError`` (UNKNOWN: it may have happened; call again with
the same bytes), ``StoreAccessError`` (403, 400, missing bucket: stop) or ``StoreFullError``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol


class Created(Enum):
    """What ``Store.create`` found."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Entry:
    """One object in a listing: its key, its size, and a tag that changes whenever it is rewritten."""

    key: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """What ``Store.fetch`` wrote: the size, and the ``xxh3_128:...`` digest of the bytes."""

    size_bytes: int
    digest: str


class Store(Protocol):
    """Where a run's objects live. Keys match ``[A-Za-z0-9._/-]+``, at most 512 characters.

    No operation retries by itself: ``store.retrying`` is the one place that does.
    """

    async def create(self, key: str, data: bytes) -> Created:
        """Create ``key`` holding ``data`` unless it exists; an existing object is untouched.

        One single conditional PUT of a small record, never multipart.
        """
        ...

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Write the concatenation of ``buffers``, overwriting.

        Only for a key no one else ever writes: a unique name, or a beat or hint with one writer.
        Large objects go up in parts, without a second copy of the whole in memory.
        """
        ...

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return bytes ``[start, end)``, cut at the object's end; None when there is no object."""
        ...

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """Stream the object into the file ``path``, hashing on the way; None when there is none.

        Raises:
            PayloadError: the object is larger than ``limit_bytes``; at most that many were read.
        """
        ...

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """Return every object whose key starts with ``prefix`` and sorts after ``after``.

        In UTF-8 byte order, each key once. ``after`` is a full key.
        """
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove ``keys``; a missing key is not an error."""
        ...

    async def close(self) -> None:
        """Release connections; no operation may follow."""
        ...
