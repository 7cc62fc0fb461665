"""Whatever fsspec reads, as a store: ``fsspec+sftp://...``, ``fsspec+memory://...``.

Fit for a run only where opening with "xb" is atomic on the other side. ``gradientmail doctor``
finds out, and ``init`` refuses where it is not.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
from fsspec.utils import tokenize

from gradientmail.errors import (
    GradientMailError,
    SettingsError,
    StoreAccessError,
    StoreUnavailableError,
)
from gradientmail.store.base import Created, Entry, Fetched, Store, check_key
from gradientmail.store.buckets import wanted
from gradientmail.store.local import Offload
from gradientmail.store.streams import byte_views, copy, sink_to

# Each file system says in its own way that there is no such file.
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, FileExistsError)


def open_fsspec(protocol: str, rest: str) -> "FsspecStore":
    """Return the store at ``protocol://rest``.

    Raises:
        SettingsError: fsspec has no such protocol, or the package behind it is not installed.
    """
    options = {"use_listings_cache": False, "skip_instance_cache": True}
    try:
        filesystem, root = fsspec.url_to_fs(f"{protocol}://{rest}", **options)
    except (ValueError, ImportError) as error:
        raise SettingsError(f"fsspec+{protocol}://{rest}: {error}") from error
    return FsspecStore(filesystem, root)


class FsspecStore(Store):
    """Objects as files under ``root`` of a blocking fsspec file system."""

    def __init__(
        self,
        filesystem: Any,  # noqa: ANN401 - fsspec has no types
        root: str,
        *,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._offload = offload

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        return await self._offload(self._create, self._path(key), data)

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._offload(self._write, self._path(key), "wb", byte_views(buffers))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        return await self._offload(self._read, self._path(key), start, end)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        return await self._offload(self._fetch, self._path(key), path, limit_bytes)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        return wanted(await self._offload(self._list, prefix), prefix, after)

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        for path in [self._path(key) for key in keys]:
            await self._offload(self._delete, path)

    async def close(self) -> None:
        """See ``Store.close``."""

    def _path(self, key: str) -> str:
        return f"{self._root}/{check_key(key)}"

    def _create(self, path: str, data: bytes) -> Created:
        try:
            self._write(path, "xb", [memoryview(data)])
        except FileExistsError:
            return Created.EXISTS
        return Created.CREATED

    def _write(self, path: str, mode: str, views: Sequence[memoryview]) -> None:
        with _translated(path):
            self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._filesystem.open(path, mode) as file:
                for view in views:
                    file.write(view)

    def _read(self, path: str, start: int, end: int | None) -> bytes | None:
        with _translated(path), contextlib.suppress(*_MISSING):
            return bytes(self._filesystem.cat_file(path, start=start, end=end))
        return None

    def _fetch(self, source: str, path: Path, limit_bytes: int) -> Fetched | None:
        with _translated(source), contextlib.suppress(*_MISSING):
            with self._filesystem.open(source, "rb") as file, sink_to(path, limit_bytes) as sink:
                copy(file, sink)
            return sink.fetched()
        return None

    def _list(self, prefix: str) -> Iterable[Entry]:
        directory = f"{self._root}/{prefix}".rpartition("/")[0]
        with _translated(directory):
            found: dict[str, dict[str, Any]] = self._filesystem.find(directory, detail=True)
        for path, facts in found.items():
            key = path.removeprefix(f"{self._root}/")
            yield Entry(key, facts["size"], str(facts.get("ETag") or tokenize(facts)))

    def _delete(self, path: str) -> None:
        with _translated(path), contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(path)


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    """Pass what the operations handle and our own errors; the rest is refusal or UNKNOWN."""
    try:
        yield
    except (*_MISSING, GradientMailError):
        raise
    except PermissionError as error:
        raise StoreAccessError(f"{path}: {error}; check the credentials") from error
    except NotImplementedError as error:
        raise StoreAccessError(f"{path}: fsspec cannot do that there: {error}") from error
    except Exception as error:  # each protocol has its own
        raise StoreUnavailableError(f"{path}: {type(error).__name__}: {error}") from error
