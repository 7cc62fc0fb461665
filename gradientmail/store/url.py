"""A store by its URL: where the run lives is all a user names."""

import difflib
import os
import random
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from gradientmail.clock import Clock
from gradientmail.errors import SettingsError
from gradientmail.store.base import Store
from gradientmail.store.buckets import BucketPrefix
from gradientmail.store.crashing import CrashingStore, CrashPoint
from gradientmail.store.local import LocalStore
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.store.retrying import DEADLINE_S, RetryingStore

StoreClient = Literal["obstore", "s3fs"]

BUCKET_SCHEMES = ("s3", "gs", "az")
SCHEMES = ("file", "memory", *BUCKET_SCHEMES)

_memories: dict[str, MemoryStore] = {}


def open_store(
    url: str,
    *,
    clock: Clock,
    rng: random.Random,
    client: StoreClient = "obstore",
    meter: Meter | None = None,
    deadline_s: float = DEADLINE_S,
) -> Store:
    """Return the store at ``url``: retrying, and counted in ``meter``. Nothing is contacted yet.

    Each operation is retried for at most ``deadline_s``. Where ``GRADIENTMAIL_CRASH_AT`` says so,
    the process dies at one of its attempts.

    ============================  =========================================================
    ``runs/one``, ``file:///...``  a directory; the first write makes it
    ``s3://bucket/prefix``        S3 and what speaks like it, by ``client``
    ``gs://...``, ``az://...``    Google Cloud Storage, Azure
    ``fsspec+PROTO://...``        whatever fsspec has installed
    ``memory://name``             this process only; the same name is the same store
    ============================  =========================================================

    Raises:
        SettingsError: the URL is of no known kind, or incomplete.
    """
    inner = open_client(url, clock=clock, client=client)
    if point := CrashPoint.from_environment(os.environ):
        inner = CrashingStore(inner, point)
    metered = MeteredStore(inner, meter or Meter())
    return RetryingStore(metered, clock, rng, deadline_s=deadline_s)


def open_client(url: str, *, clock: Clock, client: StoreClient = "obstore") -> Store:
    """Return the bare store at ``url``, one attempt an operation; see ``open_store``."""
    scheme, rest = split_url(url)
    if scheme == "file":
        return LocalStore(Path(rest))
    if scheme == "memory":
        return _memories.setdefault(rest, MemoryStore())
    if scheme.startswith("fsspec+"):
        return _fsspec_store(scheme.removeprefix("fsspec+"), rest)
    return _bucket_store(scheme, rest, clock, client)


def split_url(url: str) -> tuple[str, str]:
    """Return the scheme of ``url`` and what follows it; a plain path is a ``file``.

    Raises:
        SettingsError: no store has this scheme.
    """
    typed, separator, rest = url.partition("://")
    if not separator:
        return "file", _plain_path(url)
    scheme = typed.lower()
    if scheme == "file":
        if not rest.startswith("/"):
            raise SettingsError(f"{url!r}: write file:///absolute/path, with three slashes")
        return scheme, unquote(rest)
    if scheme in SCHEMES or scheme.startswith("fsspec+"):
        return scheme, rest
    nearest = difflib.get_close_matches(scheme, SCHEMES, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}://?" if nearest else f"known: {', '.join(SCHEMES)}"
    raise SettingsError(f"{url!r}: no store is called {scheme}://; {hint} (or fsspec+{scheme}://)")


def _plain_path(url: str) -> str:
    head, colon, rest = url.partition(":")
    if colon and head in SCHEMES:
        raise SettingsError(f"{url!r}: write {head}://{rest.lstrip('/')}, with two slashes")
    if not url:
        raise SettingsError("the store's URL is empty; name a directory or s3://bucket/prefix")
    return str(Path(url).expanduser())


def _bucket_store(scheme: str, rest: str, clock: Clock, client: StoreClient) -> Store:
    # The client libraries take a second to import, and a run in a directory needs neither.
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise SettingsError(f"{scheme}://{rest} names no bucket; write {scheme}://bucket/prefix")
    place = BucketPrefix(scheme, bucket, f"{stripped}/" if (stripped := prefix.strip("/")) else "")
    if client == "s3fs":
        if scheme != "s3":
            raise SettingsError(f's3fs is for s3:// only; for {scheme}:// set client "obstore"')
        from gradientmail.store.s3fs import open_s3fs  # noqa: PLC0415

        return open_s3fs(place)
    from gradientmail.store.s3 import open_bucket  # noqa: PLC0415

    return open_bucket(place, clock)


def _fsspec_store(protocol: str, rest: str) -> Store:
    from gradientmail.store.fsspec import open_fsspec  # noqa: PLC0415

    return open_fsspec(protocol, rest)
