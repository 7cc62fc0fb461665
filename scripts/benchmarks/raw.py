"""Client libraries alone, used as their own documentation does: what stores are compared with."""

import asyncio
import os
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.store import S3Store
from s3fs import S3FileSystem

from gradientmail.testing.servers import S3Server


class Client(Protocol):
    """A client library alone."""

    async def create(self, key: str, data: bytes) -> None: ...
    async def put(self, key: str, data: bytes) -> None: ...
    async def read(self, key: str) -> bytes: ...
    async def fetch(self, key: str, path: Path) -> None: ...
    async def list(self, prefix: str) -> int: ...


class Obstore:
    """obstore, with the configuration of a plain user."""

    def __init__(self, server: S3Server) -> None:
        self._store = S3Store(
            server.bucket,
            prefix="alone-obstore",
            endpoint=server.endpoint,
            region=server.region,
            access_key_id=server.access_key_id,
            secret_access_key=server.secret_access_key,
            client_options={"allow_http": True},
        )

    async def create(self, key: str, data: bytes) -> None:
        await obstore.put_async(self._store, key, data, mode="create", use_multipart=False)

    async def put(self, key: str, data: bytes) -> None:
        await obstore.put_async(self._store, key, data)

    async def read(self, key: str) -> bytes:
        result = await obstore.get_async(self._store, key)
        return bytes(await result.bytes_async())

    async def fetch(self, key: str, path: Path) -> None:
        result = await obstore.get_async(self._store, key)
        with path.open("wb") as file:
            async for chunk in result.stream(min_chunk_size=1 << 20):
                file.write(chunk)

    async def list(self, prefix: str) -> int:
        return len(await obstore.list(self._store, prefix).collect_async())


class S3fs:
    """s3fs, by its own methods."""

    def __init__(self, server: S3Server) -> None:
        self._root = f"{server.bucket}/alone-s3fs"
        self._bucket = server.bucket
        self._fs = S3FileSystem(
            key=server.access_key_id,
            secret=server.secret_access_key,
            endpoint_url=server.endpoint,
            client_kwargs={"region_name": server.region},
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
        )

    async def create(self, key: str, data: bytes) -> None:
        place: dict[str, Any] = {"Bucket": self._bucket, "Key": f"alone-s3fs/{key}", "Body": data}
        await self._fs._call_s3("put_object", **place, IfNoneMatch="*")  # noqa: SLF001

    async def put(self, key: str, data: bytes) -> None:
        await self._fs._pipe_file(f"{self._root}/{key}", data)  # noqa: SLF001

    async def read(self, key: str) -> bytes:
        return bytes(await self._fs._cat_file(f"{self._root}/{key}"))  # noqa: SLF001

    async def fetch(self, key: str, path: Path) -> None:
        await self._fs._get_file(f"{self._root}/{key}", str(path))  # noqa: SLF001

    async def list(self, prefix: str) -> int:
        return len(await self._fs._find(f"{self._root}/{prefix}"))  # noqa: SLF001


class Files:
    """The system calls that durable files need, in a thread as asyncio has it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def create(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._write, self._root / key, data, linked=True)

    async def put(self, key: str, data: bytes) -> None:
        await asyncio.to_thread(self._write, self._root / key, data, linked=False)

    async def read(self, key: str) -> bytes:
        return await asyncio.to_thread((self._root / key).read_bytes)

    async def fetch(self, key: str, path: Path) -> None:
        await asyncio.to_thread(_copy, self._root / key, path)

    async def list(self, prefix: str) -> int:
        return len(await asyncio.to_thread(_list, self._root / prefix))

    def _write(self, path: Path, data: bytes, *, linked: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(f".{path.name}.tmp")
        with staged.open("wb", buffering=0) as file:
            rest = memoryview(data)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(file.fileno())
        if linked:
            os.link(staged, path)
            staged.unlink()
        else:
            staged.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)


def _copy(source: Path, path: Path) -> None:
    buffer = bytearray(1 << 20)
    view = memoryview(buffer)
    with source.open("rb") as reading, path.open("wb") as writing:
        while count := reading.readinto(buffer):
            writing.write(view[:count])


def _list(directory: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of every file beneath, in order."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                found += _list(Path(entry))
            else:
                status = entry.stat()
                found.append((entry.path, status.st_size, status.st_mtime_ns))
    return sorted(found)
