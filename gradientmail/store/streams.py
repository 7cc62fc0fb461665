"""Buffers going up and files coming down, the same way in every store."""

import contextlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from io import SEEK_CUR, SEEK_END, SEEK_SET, BufferedReader, RawIOBase
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import xxhash

from gradientmail.errors import PayloadError
from gradientmail.store.base import Fetched
from gradientmail.store.disk_errors import disk_errors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


def byte_views(buffers: Sequence[bytes | memoryview]) -> list[memoryview]:
    """Return ``buffers`` as flat views of unsigned bytes, without copying; empty ones left out."""
    views = [memoryview(buffer) for buffer in buffers]
    return [view.cast("B") for view in views if view.nbytes]


class ViewsReader(RawIOBase):
    """A file that reads the concatenation of ``views``, for clients that would copy it whole."""

    def __init__(self, views: Sequence[memoryview]) -> None:
        self._views = views
        self._ends = list(accumulate(map(len, views)))
        self._at = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes: clients look for the end, and read twice where they sign what they send."""
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """See ``io.IOBase.seek``."""
        size_bytes = self._ends[-1] if self._ends else 0
        self._at = offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: size_bytes}[whence]
        return self._at

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Fill ``buffer`` from one of the views; return the bytes read, 0 at the end."""
        index = bisect_right(self._ends, self._at)
        if index == len(self._ends):
            return 0
        target = memoryview(buffer).cast("B")
        found = self._views[index][self._at - self._ends[index] :][: len(target)]
        target[: len(found)] = found
        self._at += len(found)
        return len(found)


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
