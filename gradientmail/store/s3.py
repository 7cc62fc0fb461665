"""Object storage through obstore (the Rust ``object_store``): S3, Google Cloud Storage, Azure.

Two clients underneath. *Quick*: small requests, one attempt, 10 seconds; a transport that retried
a conditional write by itself would turn our own success into "exists". *Bulk*: large objects in
parts of one size (R2 wants them equal), where a part that failed is sent again.

Not fork-safe: the Rust runtime's threads do not survive ``os.fork``; open the store after it.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError
from obstore.store import AzureStore, GCSStore, S3Store

from gradientmail.clock import Clock
from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store.aws import AwsCredentials, AwsPlace
from gradientmail.store.base import Created, Entry, Fetched, Store, check_key
from gradientmail.store.local import Offload
from gradientmail.store.s3_errors import store_error
from gradientmail.store.streams import byte_views, sink_to

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import S3Config

PART_BYTES = 16 << 20
PARTS_IN_FLIGHT = 4

_CONNECT = {"connect_timeout": "5s"}
_QUICK: dict[str, Any] = {
    "client_options": _CONNECT | {"timeout": "10s"},
    "retry_config": {"max_retries": 0},
}
_BULK: dict[str, Any] = {
    "client_options": _CONNECT | {"timeout": "300s"},  # of one part, not of the whole
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=120)},
}

Client = S3Store | GCSStore | AzureStore


def open_bucket(scheme: str, bucket: str, prefix: str, clock: Clock) -> "ObjectStore":
    """Return the store under ``prefix`` of a bucket; ``scheme`` is ``s3``, ``gs`` or ``az``.

    Raises:
        StoreAccessError: there are no credentials, or the settings make no sense.
    """
    try:
        if scheme == "s3":
            place, credentials = AwsPlace.configured(), AwsCredentials(clock)
            quick, bulk = (_s3(bucket, place, credentials, kind) for kind in (_QUICK, _BULK))
            return ObjectStore(quick, bulk, prefix)
        kind = GCSStore if scheme == "gs" else AzureStore
        return ObjectStore(kind(bucket, **_QUICK), kind(bucket, **_BULK), prefix)
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise StoreAccessError(f"{scheme}://{bucket}: {reason}") from error


def _s3(
    bucket: str, place: AwsPlace, credentials: AwsCredentials, kind: dict[str, Any]
) -> S3Store:
    config: S3Config = {"region": place.region, "conditional_put": "etag"}
    if place.endpoint:
        config["endpoint"] = place.endpoint
    plain = (place.endpoint or "").startswith("http://")
    return S3Store(
        bucket,
        config=config,
        credential_provider=credentials,
        retry_config=kind["retry_config"],
        client_options=kind["client_options"] | {"allow_http": plain},
    )


class ObjectStore(Store):
    """Objects under ``prefix`` of a bucket, by a quick and a bulk client to the same bucket."""

    def __init__(
        self, quick: Client, bulk: Client, prefix: str, *, offload: Offload = asyncio.to_thread
    ) -> None:
        self._quick = quick
        self._bulk = bulk
        self._prefix = f"{stripped}/" if (stripped := prefix.strip("/")) else ""
        self._offload = offload

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        path = self._path(key)
        with _translated(f"create {key!r}"):
            try:
                await obstore.put_async(
                    self._quick, path, data, mode="create", use_multipart=False
                )
            except AlreadyExistsError as error:
                if (
                    _status(error) == HTTPStatus.CONFLICT
                ):  # two conditional writes met: nobody knows who won
                    raise StoreUnavailableError(f"create {key!r}: 409 conflict") from error
                return Created.EXISTS
        return Created.CREATED

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        path, views = self._path(key), byte_views(buffers)
        with _translated(f"put {key!r}"):
            if sum(map(len, views)) <= PART_BYTES:
                body = b"".join(views)
                await obstore.put_async(self._bulk, path, body, use_multipart=False)
            else:
                await obstore.put_async(
                    self._bulk,
                    path,
                    iter(views),
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT,
                )

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        path = self._path(key)
        with _translated(f"read {key!r}"):
            part = await _get(self._quick, path, start, end)
        return None if part is None else bytes(part.data)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``. Parts of the object arrive side by side."""
        source = self._path(key)
        with _translated(f"fetch {key!r}"):
            first = await _get(self._bulk, source, 0, max(1, min(limit_bytes, PART_BYTES)))
            if first is None:
                return None
            with sink_to(path, limit_bytes) as sink:
                sink.expect(first.size_bytes)
                await self._offload(sink.write, first.data)
                async for data in self._rest(source, first):
                    await self._offload(sink.write, data)
        return sink.fetched()

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``.

        obstore lists whole directories, and SeaweedFS sorts "a/b" before "a-b": so what comes is
        filtered and sorted here, and the place to start is moved back to where all orders agree.
        """
        offset = None
        if after.startswith(prefix):
            common = re.split("[-.]", after[len(prefix) :])[0]
            offset = f"{self._prefix}{prefix}{common}" or None
        elif after > prefix:
            return []
        directory = f"{self._prefix}{prefix}".rpartition("/")[0]
        with _translated(f"list {prefix!r}"):
            stream = obstore.list(self._quick, directory or None, offset=offset)
            found = await stream.collect_async()
        entries = (
            Entry(meta["path"].removeprefix(self._prefix), meta["size"], meta["e_tag"] or "")
            for meta in found
        )
        asked = [entry for entry in entries if entry.key.startswith(prefix) and entry.key > after]
        return sorted(asked, key=lambda entry: entry.key)

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        paths = [self._path(key) for key in keys]
        with _translated(f"delete {len(paths)} keys"):
            await _delete(self._quick, paths)

    async def close(self) -> None:
        """See ``Store.close``."""

    def _path(self, key: str) -> str:
        return f"{self._prefix}{check_key(key)}"

    async def _rest(self, path: str, first: "_Part") -> AsyncIterator[memoryview]:
        """Yield the parts after the first one in order, a few asked for at once."""
        starts = iter(range(len(first.data), first.size_bytes, PART_BYTES))
        while batch := list(islice(starts, PARTS_IN_FLIGHT)):
            asked = (
                _get(self._bulk, path, start, start + PART_BYTES, tag=first.tag) for start in batch
            )
            for part in await asyncio.gather(*asked):
                if part is None:
                    raise StoreUnavailableError(f"{path!r} was deleted while it was fetched")
                yield part.data


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes of an object, and the size and tag of the whole."""

    data: memoryview
    size_bytes: int
    tag: str | None


async def _get(
    client: Client, path: str, start: int, end: int | None, tag: str | None = None
) -> _Part | None:
    """Return ``[start, end)`` of an object, if it still has ``tag``; None when there is none."""
    options: GetOptions = {}
    if tag is not None:
        options["if_match"] = tag
    if end is not None:
        options["range"] = (start, end)
    elif start:
        options["range"] = {"offset": start}
    try:
        result = await obstore.get_async(client, path, options=options)
        data = memoryview(await result.bytes_async())
        return _Part(data, result.meta["size"], result.meta["e_tag"])
    except FileNotFoundError as error:
        if _code(error) == "NoSuchBucket":
            raise
        return None
    except BaseError as error:
        if _status(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _Part(memoryview(b""), 0, None)  # the object ends before ``start``
        raise


async def _delete(client: Client, paths: Sequence[str]) -> None:
    try:
        await obstore.delete_async(client, paths)
    except FileNotFoundError as error:
        if _code(error) == "NoSuchBucket":
            raise
        if len(paths) > 1:  # Google and Azure stop at a missing key
            for path in paths:
                await _delete(client, [path])


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except InvalidPathError as error:
        reason = str(error).partition("\n")[0]
        raise StoreAccessError(f"{what}: a foreign object is in the way: {reason}") from error
    except (BaseError, FileNotFoundError) as error:
        raise store_error(what, _status(error), _code(error), _detail(error)) from error


def _status(error: Exception) -> int | None:
    found = re.search(r"status(?: code)?: (\d{3})", str(error))
    return int(found[1]) if found else None


def _code(error: Exception) -> str:
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found[1] if found else ""


def _detail(error: Exception) -> str:
    """Return what the server said, or what the system said about the connection."""
    found = re.search(r"<Message>([^<]+)</Message>|(?:message|error): \"([^\"]+)\"", str(error))
    return (found[1] or found[2]) if found else str(error).partition("\n")[0]
