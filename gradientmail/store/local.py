"""A store in a directory of a local or network disk: atomic by ``link(2)``, durable by ``fsync``.

An object is a file. It is written under a dot-name beside its final one, so that no reader ever
sees half of it, and then linked (``create``) or renamed (``put``) into place. ``link`` refuses an
existing name atomically, on NFS too; ``rename`` would replace it, and looking first would race.
A process killed half-way leaves a dot-file, which listings skip. Its writer's lock on it is gone
then, which is how a later ``delete`` in the same directory knows it, and removes it too.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from io import BufferedReader
from operator import attrgetter
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from gradientmail.clock import fresh_nonce, system_random
from gradientmail.errors import StoreUnavailableError
from gradientmail.store.base import Created, Entry, Fetched, Store, check_key
from gradientmail.store.disk_errors import disk_errors
from gradientmail.store.streams import byte_views, copy, sink_to

P = ParamSpec("P")
T = TypeVar("T")


class Offload(Protocol):
    """Runs a blocking call away from the event loop, as ``asyncio.to_thread`` does."""

    def __call__(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Return the awaitable of ``function``'s result."""
        ...


class LocalStore(Store):
    """Objects as files under ``root``, which the first write creates.

    Example:
        >>> store = LocalStore(Path("/shared/run"))
        >>> asyncio.run(store.create("a/1", b"first"))
        <Created.CREATED: 'created'>
    """

    def __init__(self, root: Path, *, offload: Offload = asyncio.to_thread) -> None:
        self._root = root.absolute()
        self._offload = offload
        self._rng = system_random()

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        return await self._offload(self._create, self._path(key), data)

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._offload(self._put, self._path(key), buffers)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        return await self._offload(_read, self._path(key), start, end)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        return await self._offload(_fetch, self._path(key), path, limit_bytes)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        return await self._offload(_list, self._root, prefix, after)

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        await self._offload(self._delete, [self._path(key) for key in keys])

    async def close(self) -> None:
        """See ``Store.close``."""

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _create(self, path: Path, data: bytes) -> Created:
        with disk_errors(path), self._staged(path, [data]) as staged:
            try:
                os.link(staged, path)
            except OSError as error:
                # Two links mean that ours was made and only the answer was lost (NFS).
                if staged.stat().st_nlink == 1:
                    if error.errno == errno.EEXIST:
                        return Created.EXISTS
                    raise
        return Created.CREATED

    def _put(self, path: Path, buffers: Sequence[bytes | memoryview]) -> None:
        with disk_errors(path), self._staged(path, buffers) as staged:
            staged.replace(path)

    @contextlib.contextmanager
    def _staged(self, path: Path, buffers: Sequence[bytes | memoryview]) -> Iterator[Path]:
        """Write a durable temporary file beside ``path``; when all is done it is gone."""
        staged, descriptor = self._open_beside(path)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            try:
                for view in byte_views(buffers):
                    written = 0
                    while written < len(view):
                        written += file.write(view[written:])
                os.fsync(descriptor)
                yield staged
            finally:
                staged.unlink(missing_ok=True)
        _sync(path.parent)

    def _open_beside(self, path: Path) -> tuple[Path, int]:
        """Open and lock a new dot-file; again when a concurrent ``delete`` was in the way."""
        for _ in range(8):
            staged = path.with_name(f".{fresh_nonce(self._rng)}.tmp")
            with contextlib.suppress(FileNotFoundError):
                _make_durable(path.parent)
                descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                with contextlib.suppress(OSError):  # a disk without locks keeps its dot-files
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink:
                    return staged, descriptor
                os.close(descriptor)
        raise StoreUnavailableError(f"the directory of {path} vanishes whenever it is made")

    def _delete(self, paths: Sequence[Path]) -> None:
        for path in paths:
            with disk_errors(path), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
        for directory in {path.parent for path in paths}:
            _remove_orphans(directory)
            _remove_empty(directory, self._root)


def _read(path: Path, start: int, end: int | None) -> bytes | None:
    with disk_errors(path):
        file = _opened(path)
        if file is None:
            return None
        with file:
            file.seek(start)
            return file.read() if end is None else file.read(max(0, end - start))


def _fetch(source: Path, path: Path, limit_bytes: int) -> Fetched | None:
    with disk_errors(source):
        file = _opened(source)
        if file is None:
            return None
        with file, sink_to(path, limit_bytes) as sink:
            sink.expect(os.fstat(file.fileno()).st_size)
            copy(file, sink)
        return sink.fetched()


def _opened(path: Path) -> BufferedReader | None:
    """Open an object for reading; None when there is none, or a directory has its name."""
    try:
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None


def _list(root: Path, prefix: str, after: str) -> Sequence[Entry]:
    """Walk only the directories that can hold keys of ``prefix`` after ``after``."""
    entries: list[Entry] = []
    pending = [prefix.rpartition("/")[0]]
    with disk_errors(root):
        while pending:
            directory = pending.pop()
            for found in _scan(root / directory):
                key = f"{directory}/{found.name}" if directory else found.name
                if found.is_dir():
                    if _may_hold(f"{key}/", prefix, after):
                        pending.append(key)
                elif not found.name.startswith(".") and key.startswith(prefix) and key > after:
                    entry = _entry(key, found)
                    if entry is not None:
                        entries.append(entry)
    return sorted(entries, key=attrgetter("key"))


def _may_hold(directory: str, prefix: str, after: str) -> bool:
    """Say whether a key under ``directory`` (ending in "/") can be asked for."""
    related = directory.startswith(prefix) or prefix.startswith(directory)
    return related and (directory > after or after.startswith(directory))


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _entry(key: str, found: os.DirEntry[str]) -> Entry | None:
    """Return what is listed of one file; None when it is gone."""
    try:
        status = found.stat()
    except FileNotFoundError:
        return None
    tag = f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"
    return Entry(key, status.st_size, tag)


def _make_durable(directory: Path) -> None:
    """Make ``directory`` and its parents, so that they survive a power cut."""
    if directory.is_dir():
        return
    _make_durable(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir()
    _sync(directory.parent)


def _remove_orphans(directory: Path) -> None:
    """Remove the dot-files in ``directory`` whose writers are gone, and with them their locks."""
    for found in _scan(directory):
        if found.name.startswith(".") and found.name.endswith(".tmp"):
            with contextlib.suppress(OSError), Path(found).open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(found).unlink()


def _remove_empty(directory: Path, root: Path) -> None:
    """Remove ``directory`` and its parents below ``root`` as far as they are empty."""
    with contextlib.suppress(OSError):
        while directory != root:
            directory.rmdir()
            directory = directory.parent


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
