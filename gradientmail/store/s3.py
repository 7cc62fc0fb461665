"""Object storage through obstore (the Rust ``object_store``): S3, Google Cloud Storage, Azure.

Two clients underneath. *Quick*: small requests, one attempt, given up after 10 silent seconds; a
transport that retried a conditional write by itself would turn our own success into "exists".
*Bulk*: large objects in parts of one size (R2 wants them equal), where a part that failed is sent
again, and one that broke off on its way here goes on where it was.

Not fork-safe: the Rust runtime's threads do not survive ``os.fork``; open the store after it.

One of those threads tells the event loop how a request ended, and then is in Python for another
moment. Before Python 3.14 a thread that is there when the interpreter ends takes the process with
it (SIGABRT): a store is closed once they have let go of all its requests.
"""

import asyncio
import contextlib
import re
import weakref
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError
from obstore.store import AzureStore, GCSStore, S3Store

from gradientmail.clock import Clock, SystemClock
from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store.aws import AwsCredentials, AwsSettings
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
    wanted,
)
from gradientmail.store.local import Offload
from gradientmail.store.s3_errors import store_error
from gradientmail.store.streams import byte_views

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import S3Config


def _patient(silence_s: int) -> dict[str, str]:
    """Return the options of a client that waits while bytes go on coming.

    For the beginning of an answer, and for more of it, at most ``silence_s``: what is sent must be
    sent by then, what is received may take its time.
    """
    return {"connect_timeout": "5s", "read_timeout": f"{silence_s}s", "timeout": "1day"}


_QUICK: dict[str, Any] = {
    "client_options": _patient(10),
    "retry_config": {"max_retries": 0},
}
_BULK: dict[str, Any] = {
    "client_options": _patient(300),
    "retry_config": {"max_retries": 4, "retry_timeout": timedelta(seconds=120)},
}

_POLL_S = 0.001
_MOST_POLLS = 5000  # whatever holds a request longer must not keep a process from its end

Client = S3Store | GCSStore | AzureStore

T = TypeVar("T")


def open_bucket(place: BucketPrefix, clock: Clock) -> "ObjectStore":
    """Return the store of the objects at ``place``; its scheme is ``s3``, ``gs`` or ``az``.

    Raises:
        StoreAccessError: there are no credentials, or the settings make no sense.
    """
    try:
        if place.scheme == "s3":
            return ObjectStore(*_s3_clients(place.bucket, clock), place)
        kind = GCSStore if place.scheme == "gs" else AzureStore
        quick, bulk = kind(place.bucket, **_QUICK), kind(place.bucket, **_BULK)
        return ObjectStore(quick, bulk, place)
    except (BaseError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise StoreAccessError(f"{place}: {reason}") from error


def _s3_clients(bucket: str, clock: Clock) -> tuple[S3Store, S3Store]:
    credentials, settings = AwsCredentials(clock), AwsSettings.found()
    config: S3Config = {"region": settings.region, "conditional_put": "etag"}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    plain = {"allow_http": (settings.endpoint or "").startswith("http://")}

    def client(options: dict[str, Any]) -> S3Store:
        return S3Store(
            bucket,
            config=config,
            credential_provider=credentials,
            retry_config=options["retry_config"],
            client_options=options["client_options"] | plain,
        )

    return client(_QUICK), client(_BULK)


class ObjectStore(Store):
    """Objects under ``prefix`` of a bucket, by a quick and a bulk client to the same bucket."""

    def __init__(
        self,
        quick: Client,
        bulk: Client,
        place: BucketPrefix,
        offload: Offload = asyncio.to_thread,
    ) -> None:
        self._quick = quick
        self._bulk = bulk
        self._place = place
        self._offload = offload
        self._seats = asyncio.Semaphore(PARTS_AT_ONCE)
        self._held: list[weakref.ref[object]] = []

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        path = self._place.name(key)
        with _translated(f"create {self._place}{key}"):
            try:
                await self._asked(
                    obstore.put_async(self._quick, path, data, mode="create", use_multipart=False)
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
        path, views = self._place.name(key), byte_views(buffers)
        with _translated(f"put {self._place}{key}"):
            if sum(map(len, views)) <= PART_BYTES:
                body = b"".join(views)
                await self._asked(obstore.put_async(self._bulk, path, body, use_multipart=False))
            else:
                await self._asked(
                    obstore.put_async(
                        self._bulk,
                        path,
                        iter(views),
                        use_multipart=True,
                        chunk_size=PART_BYTES,
                        max_concurrency=PARTS_IN_FLIGHT,
                    )
                )

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        path = self._place.name(key)
        quick, bulk = (partial(self._get, client, path) for client in (self._quick, self._bulk))
        with _translated(f"read {self._place}{key}"):
            return await read_parts(quick, bulk, start, end, self._offload, self._seats)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        get = partial(self._get, self._bulk, self._place.name(key))
        with _translated(f"fetch {self._place}{key}"):
            return await fetch_parts(get, path, limit_bytes, self._offload, self._seats)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``. obstore lists whole directories: what comes is filtered here."""
        if after > prefix and not after.startswith(prefix):
            return []
        start = safe_start(prefix, after)
        offset = None if start is None else f"{self._place.prefix}{start}"
        directory = f"{self._place.prefix}{prefix}".rpartition("/")[0]
        with _translated(f"list {self._place}{prefix}"):
            stream = obstore.list(self._quick, directory or None, offset=offset)
            found = await self._asked(stream.collect_async())
        entries = (
            Entry(self._place.key(meta["path"]), meta["size"], meta["e_tag"] or "")
            for meta in found
        )
        return wanted(entries, prefix, after)

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        paths = [self._place.name(key) for key in keys]
        with _translated(f"delete {len(paths)} keys of {self._place}"):
            await self._delete(paths)

    async def _get(
        self, client: Client, path: str, start: int, end: int, tag: str | None
    ) -> Part | None:
        """Return ``[start, end)`` of an object, if it has ``tag``; None when there is none."""
        options: GetOptions = {"range": (start, max(end, start + 1))}  # an empty one is refused
        if tag is not None:
            options["if_match"] = tag
        try:
            result = await self._asked(obstore.get_async(client, path, options=options))
            data = memoryview(await self._asked(result.bytes_async()))
            return Part(data, result.meta["size"], result.meta["e_tag"])
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise
            return None
        except BaseError as error:
            if _status(error) == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return Part(memoryview(b""), 0, None)  # the object ends before ``start``
            raise

    async def _delete(self, paths: Sequence[str]) -> None:
        try:
            await self._asked(obstore.delete_async(self._quick, paths))
        except FileNotFoundError as error:
            if _code(error) == "NoSuchBucket":
                raise
            if len(paths) > 1:  # Google and Azure stop at a missing key
                for path in paths:
                    await self._delete([path])

    async def close(self) -> None:
        """See ``Store.close``."""
        for _ in range(_MOST_POLLS):
            self._forget_ended()
            if not self._held:
                return
            obstore.parse_scheme("s3://any")  # in any call it drops what its threads let go of
            await SystemClock().sleep(_POLL_S)  # it waits for threads, whatever clock the run has

    def _asked(self, request: Awaitable[T]) -> Awaitable[T]:
        """Return ``request``, remembered until the library holds it no longer."""
        self._forget_ended()
        self._held.append(weakref.ref(request))
        return request

    def _forget_ended(self) -> None:
        self._held = [one for one in self._held if one() is not None]


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
