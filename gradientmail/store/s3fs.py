"""S3 through s3fs: the second client, for who has it anyway, held to the same promises.

Only its ``call_s3`` is used: its ``open(..., "xb")`` truncates what exists, its ``pipe_file``
overwrites under ``IfMatch``, and its listings are cached. Below it aiohttp sends a PUT once more
when a kept connection breaks, so EXISTS may mean our own object: ``store.retrying`` reads it back.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from s3fs import S3FileSystem

from gradientmail.errors import StoreAccessError, StoreError
from gradientmail.store.aws import AwsSettings, find_credentials
from gradientmail.store.base import Created, Entry, Fetched, Store
from gradientmail.store.buckets import (
    PART_BYTES,
    PARTS_AT_ONCE,
    PARTS_IN_FLIGHT,
    BucketPrefix,
    Part,
    fetch_parts,
    read_parts,
    safe_start,
    split,
    wanted,
)
from gradientmail.store.local import Offload
from gradientmail.store.s3_errors import store_error
from gradientmail.store.streams import ViewsReader, byte_views
from gradientmail.tasks import together

_KEYS_PER_DELETE = 1000


def open_s3fs(place: BucketPrefix) -> "S3fsStore":
    """Return the store of the objects at ``place``.

    Raises:
        StoreAccessError: there are no credentials.
    """
    find_credentials()
    return S3fsStore(_filesystem(timeout_s=10), _filesystem(timeout_s=300), place)


def _filesystem(timeout_s: int) -> S3FileSystem:
    settings = AwsSettings.found()
    filesystem = S3FileSystem(
        endpoint_url=settings.endpoint,
        client_kwargs={"region_name": settings.region},
        config_kwargs={
            "connect_timeout": 5,
            "read_timeout": timeout_s,
            "retries": {"total_max_attempts": 1},
            "request_checksum_calculation": "when_required",
        },
        asynchronous=True,
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    filesystem.retries = 1
    return filesystem


class S3fsStore(Store):
    """Objects at ``place``, by a quick and a bulk client to its bucket; see ``store.s3``."""

    def __init__(
        self,
        quick: S3FileSystem,
        bulk: S3FileSystem,
        place: BucketPrefix,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._quick = quick
        self._bulk = bulk
        self._place = place
        self._offload = offload
        self._seats = asyncio.Semaphore(PARTS_AT_ONCE)

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        where = self._where(key)
        try:
            await self._call(self._quick, "put_object", **where, Body=data, IfNoneMatch="*")
        except _RefusedError as refused:
            if refused.status != HTTPStatus.PRECONDITION_FAILED:
                raise refused.meaning(f"create {self._place}{key}") from refused
            return Created.EXISTS
        return Created.CREATED

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        where, views = self._where(key), byte_views(buffers)
        with _meaning(f"put {self._place}{key}"):
            if sum(map(len, views)) <= PART_BYTES:
                await self._call(self._bulk, "put_object", **where, Body=b"".join(views))
            else:
                await self._put_parts(where, views)

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        where = self._where(key)
        quick, bulk = partial(self._get, self._quick, where), partial(self._get, self._bulk, where)
        with _meaning(f"read {self._place}{key}"):
            return await read_parts(quick, bulk, start, end, self._offload, self._seats)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        get = partial(self._get, self._bulk, self._where(key))
        with _meaning(f"fetch {self._place}{key}"):
            return await fetch_parts(get, path, limit_bytes, self._offload, self._seats)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        ask = {"Bucket": self._place.bucket, "Prefix": f"{self._place.prefix}{prefix}"}
        if start := safe_start(prefix, after):
            ask["StartAfter"] = f"{self._place.prefix}{start}"
        entries: list[Entry] = []
        with _meaning(f"list {self._place}{prefix}"):
            while True:
                page = await self._call(self._quick, "list_objects_v2", **ask)
                entries.extend(
                    Entry(self._place.key(found["Key"]), found["Size"], found["ETag"])
                    for found in page.get("Contents", ())
                )
                if not page.get("IsTruncated"):
                    return wanted(entries, prefix, after)
                if not (token := page.get("NextContinuationToken")):
                    raise _RefusedError(None, "", "the listing is cut and does not say where")
                ask["ContinuationToken"] = token

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        objects = [{"Key": self._place.name(key)} for key in keys]
        with _meaning(f"delete {len(objects)} keys of {self._place}"):
            for first in range(0, len(objects), _KEYS_PER_DELETE):
                batch = {"Objects": objects[first : first + _KEYS_PER_DELETE], "Quiet": True}
                answer = await self._call(
                    self._quick, "delete_objects", Bucket=self._place.bucket, Delete=batch
                )
                for error in answer.get("Errors", ()):
                    raise _RefusedError(None, error["Code"], error.get("Message", ""))

    async def close(self) -> None:
        """See ``Store.close``."""
        for filesystem in (self._quick, self._bulk):
            client = await filesystem.set_session()
            await client.close()

    def _where(self, key: str) -> dict[str, str]:
        return {"Bucket": self._place.bucket, "Key": self._place.name(key)}

    async def _put_parts(self, where: dict[str, str], views: Sequence[memoryview]) -> None:
        upload = await self._call(self._bulk, "create_multipart_upload", **where)
        where = where | {"UploadId": upload["UploadId"]}
        unsent = enumerate(split(views, PART_BYTES), start=1)
        tags: dict[int, str] = {}

        async def put_parts() -> None:
            for number, part in unsent:
                sent = {"PartNumber": number, "Body": ViewsReader(part)}
                answer = await self._call(self._bulk, "upload_part", **where, **sent)
                tags[number] = answer["ETag"]

        await together(*(put_parts() for _ in range(PARTS_IN_FLIGHT)))
        parts = [{"PartNumber": number, "ETag": tags[number]} for number in sorted(tags)]
        await self._call(
            self._bulk, "complete_multipart_upload", **where, MultipartUpload={"Parts": parts}
        )

    async def _get(
        self,
        filesystem: S3FileSystem,
        where: dict[str, str],
        start: int,
        end: int,
        tag: str | None,
    ) -> Part | None:
        """Return ``[start, end)`` of an object, if it still has ``tag``; None if there is none."""
        ask = where | {"Range": f"bytes={start}-{max(start, end - 1)}"}  # empty is no range
        if tag is not None:
            ask["IfMatch"] = tag
        try:
            answer = await self._call(filesystem, "get_object", **ask)
            with _refusals():
                data = await answer["Body"].read()
        except _RefusedError as refused:
            if refused.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return Part(b"", 0, None)  # the object ends before ``start``
            if refused.code == "NoSuchKey":
                return None
            raise
        size_bytes = int(answer.get("ContentRange", "").rpartition("/")[2] or len(data))
        return Part(data, size_bytes, answer["ETag"])

    async def _call(self, filesystem: S3FileSystem, method: str, **arguments: object) -> Any:  # noqa: ANN401
        """Make one attempt of one S3 request."""
        try:
            with _refusals():
                return await filesystem._call_s3(method, **arguments)  # noqa: SLF001
        except _RefusedError as refused:
            if refused.code == "ExpiredToken":
                filesystem.session = None  # the next attempt reads the credentials anew
                await filesystem.set_session(refresh=True)
            raise


class _RefusedError(Exception):
    """An answer that is not a success, or no answer (``status`` None)."""

    def __init__(self, status: int | None, code: str, detail: str) -> None:
        super().__init__(status, code, detail)
        self.status = status
        self.code = code
        self.detail = detail

    def meaning(self, what: str) -> StoreError:
        """Return what it means for us."""
        return store_error(what, self.status, self.code, self.detail)


@contextlib.contextmanager
def _meaning(what: str) -> Iterator[None]:
    try:
        yield
    except _RefusedError as refused:
        raise refused.meaning(what) from refused


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn what s3fs raises for a failed request into ``_RefusedError``."""
    try:
        yield
    except NoCredentialsError as error:
        raise StoreAccessError(f"no AWS credentials any more: {error}") from error
    except (BotoCoreError, aiohttp.ClientError, OSError) as error:
        answered = error.__cause__
        if not isinstance(answered, ClientError):
            raise _RefusedError(None, "", str(error) or type(error).__name__) from error
        response = answered.response
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        named = response.get("Error", {})
        raise _RefusedError(status, named.get("Code", ""), named.get("Message", "")) from error
