"""The store: bytes by key, six operations, and exactly what a store must promise.

1. ``create`` is atomic: of any number of concurrent calls on one key, at most one returns
   ``CREATED``, and the object never changes afterwards.
2. An object whose ``create`` or ``put`` was acknowledged becomes visible and stays until deleted.

Not promised: that a listing is fresh, that a delete has happened, the order of unrelated
operations, a clock. ``gradientmail.testing.stores`` checks the promises on any store.

A key matches ``[A-Za-z0-9._/-]+``, at most 512 characters, with no empty, ``.`` or ``..`` segment
and no last segment that begins with a dot (``check_key``); another one is a ``ValueError``.

Every operation may raise ``StoreUnavailableError`` (UNKNOWN: it may have happened; call again with
the same bytes), ``StoreAccessError`` (403, 400, missing bucket: stop) or ``StoreFullError``.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

_KEY = re.compile(r"(?=.{1,512}\Z)([A-Za-z0-9._-]+/)*(?!\.)[A-Za-z0-9._-]+")


def check_key(key: str) -> str:
    """Return ``key`` if it is one.

    Raises:
        ValueError: it has a character, a length or a segment that no key may have.
    """
    if not _KEY.fullmatch(key) or not {".", ".."}.isdisjoint(key.split("/")):
        raise ValueError(f"not a key of a store: {key!r}")
    return key


class Created(Enum):
    """What ``Store.create`` found."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Entry:
    """One object in a listing: its key, its size, and a tag that changes when it is rewritten."""

    key: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class Fetched:
    """What ``Store.fetch`` wrote: the size, and the ``xxh3_128:...`` digest of the bytes."""

    size_bytes: int
    digest: str


class Store(Protocol):
    """Where a run's objects live.

    No operation retries by itself: ``store.retrying`` is the one place that does.
    """

    async def create(self, key: str, data: bytes) -> Created:
        """Create ``key`` holding ``data`` unless it exists; an existing object is untouched.

        One single conditional PUT of a small record, never multipart. ``data`` should be unique to
        its writer (records carry a nonce): then who won can be told after a lost answer.
        """
        ...

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """Write the concatenation of ``buffers``, overwriting.

        Only for a key no one else ever writes: a unique name, or a beat or hint with one writer.
        Large objects go up in parts, without a second copy of the whole in memory.
        """
        ...

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return bytes ``[start, end)``, cut at the object's end; None when there is no object.

        A range that starts at or beyond the end is ``b""``.
        """
        ...

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """Stream the object into the file ``path``, hashing on the way; None when there is none.

        A fetch that fails leaves no file at ``path``.

        Raises:
            PayloadError: the object is larger than ``limit_bytes``; at most that many were read.
        """
        ...

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """Return every object whose key starts with ``prefix`` and sorts after ``after``.

        In UTF-8 byte order, each key once. ``after`` is a full key; ``prefix`` is any string, so
        that "r" lists "r-x" and "r/1". Foreign objects (a console's folder marker) are listed too,
        under names that may be no keys.
        """
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Remove ``keys``; a missing key is not an error."""
        ...

    async def close(self) -> None:
        """Release connections; no operation may follow."""
        ...
