"""Buffers going up and files coming down, the same way in every store."""

import contextlib
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import xxhash

from gradientmail.errors import PayloadError
from gradientmail.store.base import Fetched
from gradientmail.store.disk_errors import disk_errors


def byte_views(buffers: Sequence[bytes | memoryview]) -> list[memoryview]:
    """Return ``buffers`` as flat views of unsigned bytes, without copying; empty ones left out."""
    views = [memoryview(buffer) for buffer in buffers]
    return [view.cast("B") for view in views if view.nbytes]


class FileSink:
    """A file being written, hashed on the way, that may hold at most ``limit_bytes``.

    Raises:
        PayloadError: from ``write``, when the limit would be passed; nothing more is written.
    """

    def __init__(self, file: BinaryIO, limit_bytes: int) -> None:
        self._file = file
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._hash = xxhash.xxh3_128()

    def expect(self, size_bytes: int) -> None:
        """Refuse an object of ``size_bytes`` now, if it is too large to be taken whole."""
        if size_bytes > self._limit_bytes:
            raise PayloadError(
                f"the object is larger than expected: at least {size_bytes} bytes, "
                f"where at most {self._limit_bytes} may be"
            )

    def write(self, chunk: bytes | memoryview) -> None:
        """Append ``chunk``."""
        self.expect(self._size_bytes + len(chunk))
        self._file.write(chunk)
        self._hash.update(chunk)
        self._size_bytes += len(chunk)

    def fetched(self) -> Fetched:
        """Return what has been written so far."""
        return Fetched(self._size_bytes, f"xxh3_128:{self._hash.hexdigest()}")


@contextlib.contextmanager
def sink_to(path: Path, limit_bytes: int) -> Iterator[FileSink]:
    """Open ``path`` for a fetch; a fetch that fails leaves no file there."""
    with disk_errors(path), path.open("wb") as file:
        try:
            yield FileSink(file, limit_bytes)
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def copy(source: BufferedReader, sink: FileSink) -> None:
    """Move all of ``source`` into ``sink`` through one reused buffer of 1 MB."""
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    while count := source.readinto(buffer):
        sink.write(view[:count])
