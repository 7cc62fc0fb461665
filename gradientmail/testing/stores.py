"""The conformance suite of ``gradientmail.store.base.Store``: subclass it for each store.

    class TestMemoryStore(StoreConformance):
        def make_store(self) -> Store:
            return MemoryStore()

Each promise is a coroutine function of an empty store and a scratch directory, that fails by
``AssertionError``. Beyond the protocol's needs a listing is expected to be fresh, as all shipped
stores' are.
"""

import array
import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import xxhash

from gradientmail.errors import PayloadError, StoreUnavailableError
from gradientmail.store.base import Created, Store
from gradientmail.testing.clock import turn

Promise = Callable[[Store, Path], Awaitable[None]]

RACERS = 16
PAGED_KEYS = 1005
LARGE_BYTES = 40 << 20  # three parts of a multipart upload, the last one short

PROMISES: list[Promise] = []


def _promise(promise: Promise) -> Promise:
    PROMISES.append(promise)
    return promise


class StoreConformance(ABC):
    """Every promise gets a fresh, empty store from ``make_store``."""

    @abstractmethod
    def make_store(self) -> Store:
        """Return an empty store."""

    @pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
    def test_promise(self, promise: Promise, tmp_path: Path) -> None:
        asyncio.run(keep(promise, self.make_store, tmp_path))


async def keep(promise: Promise, make_store: Callable[[], Store], scratch: Path) -> None:
    """Hold a store from ``make_store`` to one promise."""
    store = make_store()
    try:
        await promise(store, scratch)
    finally:
        await store.close()


async def _keys(store: Store, prefix: str, after: str = "") -> list[str]:
    return [entry.key for entry in await store.list(prefix, after)]


# -- create ---------------------------------------------------------------------------------


@_promise
async def create_keeps_the_first_object(store: Store, _: Path) -> None:
    """A commit that stands is never replaced."""
    assert await store.create("a", b"first") is Created.CREATED
    assert await store.create("a", b"second, longer") is Created.EXISTS
    assert await store.read("a") == b"first"


@_promise
async def create_has_one_winner_among_racers(store: Store, _: Path) -> None:
    """Of several closers one closes a round, and its record is there."""
    bodies = [bytes([number]) * 100 for number in range(RACERS)]
    racers = [store.create("race/a", body) for body in bodies]
    outcomes = await asyncio.gather(*racers, return_exceptions=True)
    winners = [body for body, o in zip(bodies, outcomes, strict=True) if o is Created.CREATED]
    unknown = [
        body
        for body, o in zip(bodies, outcomes, strict=True)
        if isinstance(o, StoreUnavailableError)
    ]
    assert len(winners) == 1 or (not winners and unknown)
    assert len(winners) + len(unknown) + outcomes.count(Created.EXISTS) == RACERS
    assert await store.read("race/a") in (winners or unknown)


@_promise
async def create_shows_the_whole_object_or_none(store: Store, _: Path) -> None:
    """Who reads a record while it is written reads none of it."""
    body = bytes(1 << 20)
    creating = asyncio.create_task(store.create("a", body))
    while not creating.done():
        assert await store.read("a") in (None, body)
        await turn()
    assert await creating is Created.CREATED
    assert await store.read("a") == body


@_promise
async def an_empty_object_is_an_object(store: Store, scratch: Path) -> None:
    """A key that holds nothing is still taken."""
    assert await store.create("a", b"") is Created.CREATED
    assert await store.create("a", b"x") is Created.EXISTS
    await store.put("b", [])
    for key in ("a", "b"):
        assert await store.read(key) == b""
        assert await store.read(key, 0, 10) == b""
        fetched = await store.fetch(key, scratch / "out", limit_bytes=0)
        assert fetched is not None
        assert fetched.size_bytes == 0
    assert [entry.size_bytes for entry in await store.list("")] == [0, 0]


@_promise
async def a_bad_key_is_refused_before_anything_happens(store: Store, scratch: Path) -> None:
    """No key climbs out of the run's prefix."""
    for key in ("", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "a b", "\xe4", "a/.b", "x" * 513):
        for attempt in (
            partial(store.create, key, b""),
            partial(store.put, key, [b""]),
            partial(store.read, key),
            partial(store.fetch, key, scratch / "out", limit_bytes=1),
            partial(store.delete, [key]),
        ):
            with pytest.raises(ValueError, match="not a key"):
                await attempt()
    assert await _keys(store, "") == []


@_promise
async def a_key_may_use_all_that_keys_may(store: Store, _: Path) -> None:
    """Case, dots and dashes count; length and depth do not."""
    keys = [
        "A-Z/a_z/0.9",
        "deep/" + "d/" * 40 + "x",
        "dots.in.it/a..b",
        f"{'x' * 200}/{'y' * 200}",
    ]
    for key in keys:
        assert await store.create(key, key.encode()) is Created.CREATED
    assert await _keys(store, "") == sorted(keys)
    for key in keys:
        assert await store.read(key) == key.encode()


# -- put ------------------------------------------------------------------------------------


@_promise
async def put_overwrites_and_changes_the_tag(store: Store, _: Path) -> None:
    """A beat is noticed by its tag, even when its length stays."""
    tags = set()
    for body in (b"one", b"two", b"three"):
        await store.put("a", [body])
        assert await store.read("a") == body
        [entry] = await store.list("a")
        assert entry.size_bytes == len(body)
        tags.add(entry.tag)
    assert len(tags) == 3


@_promise
async def put_joins_buffers_of_any_kind(store: Store, _: Path) -> None:
    """Tensors go up as they lie in memory."""
    numbers = array.array("f", [1.0, 2.0])
    await store.put("a", [b"ab", memoryview(b""), memoryview(numbers), memoryview(b"xyz")[1:]])
    assert await store.read("a") == b"ab" + numbers.tobytes() + b"yz"


@_promise
async def a_large_object_comes_back_whole(store: Store, scratch: Path) -> None:
    """Multipart uploads and downloads lose, double and swap nothing."""
    body = _noise(LARGE_BYTES)
    view = memoryview(body)
    await store.put("large", [view[:7], view[7 : 20 << 20], view[20 << 20 :]])
    fetched = await store.fetch("large", scratch / "out", limit_bytes=LARGE_BYTES)
    assert fetched is not None
    assert fetched.size_bytes == LARGE_BYTES
    digest = xxhash.xxh3_128_hexdigest(body)
    assert fetched.digest == f"xxh3_128:{digest}"
    assert xxhash.xxh3_128_hexdigest((scratch / "out").read_bytes()) == digest
    assert await store.read("large") == body
    for start, end in ((16 << 20, (16 << 20) + 9), (7, 33 << 20), (0, LARGE_BYTES + 1)):
        assert await store.read("large", start, end) == body[start:end]
    assert [entry.size_bytes for entry in await store.list("large")] == [LARGE_BYTES]


def _noise(size_bytes: int) -> bytes:
    """Return bytes in which every stretch differs from every other."""
    return array.array("Q", range(0x9E3779B9, 0x9E3779B9 + size_bytes // 8)).tobytes()


# -- read and fetch -------------------------------------------------------------------------


@_promise
async def read_cuts_a_range_at_the_end(store: Store, _: Path) -> None:
    """A header is read by its range, before its size is known."""
    await store.create("a", b"0123456789")
    for start, end in ((0, 4), (2, 5), (9, 10), (7, 100), (0, 100), (10, 11), (50, 60), (3, 3)):
        assert await store.read("a", start, end) == b"0123456789"[start:end]
    for start in (0, 1, 9, 10, 50):
        assert await store.read("a", start) == b"0123456789"[start:]


@_promise
async def what_is_missing_is_none(store: Store, scratch: Path) -> None:
    """Absence is an answer, and not an error."""
    await store.create("there/a", b"x")
    for key in ("missing", "there", "there/b", "there/a/b"):
        assert await store.read(key) is None
        assert await store.read(key, 2, 5) is None
        assert await store.fetch(key, scratch / "out", limit_bytes=10) is None
        assert not (scratch / "out").exists()
    assert await _keys(store, "missing/") == []


@_promise
async def fetch_digests_what_it_writes(store: Store, scratch: Path) -> None:
    """Integrity is judged without reading the file again."""
    (scratch / "out").write_bytes(b"something older and longer")
    await store.create("a", b"0123456789")
    fetched = await store.fetch("a", scratch / "out", limit_bytes=10)
    assert fetched is not None
    assert fetched.size_bytes == 10
    assert fetched.digest == f"xxh3_128:{xxhash.xxh3_128_hexdigest(b'0123456789')}"
    assert (scratch / "out").read_bytes() == b"0123456789"


@_promise
async def fetch_refuses_what_is_too_large(store: Store, scratch: Path) -> None:
    """No one's object fills another's disk."""
    await store.create("a", b"0123456789")
    with pytest.raises(PayloadError, match="larger"):
        await store.fetch("a", scratch / "out", limit_bytes=9)
    assert not (scratch / "out").exists()


# -- list and delete ------------------------------------------------------------------------


@_promise
async def list_is_in_byte_order_and_after_is_exclusive(store: Store, _: Path) -> None:
    """A reader goes on where it stopped."""
    for key in ("r/2", "r/10", "r/1", "s/1", "r-x", "r.y", "r/1-a/z", "R"):
        await store.create(key, b"")
    assert await _keys(store, "r/") == ["r/1", "r/1-a/z", "r/10", "r/2"]
    assert await _keys(store, "r/", after="r/1") == ["r/1-a/z", "r/10", "r/2"]
    assert await _keys(store, "r/", after="r/1-a/z") == ["r/10", "r/2"]
    assert await _keys(store, "r/", after="r/2") == []
    assert await _keys(store, "r/", after="q") == ["r/1", "r/1-a/z", "r/10", "r/2"]
    assert await _keys(store, "r/", after="s") == []


@_promise
async def list_takes_any_prefix(store: Store, _: Path) -> None:
    """A prefix is a string; SeaweedFS and obstore think of directories."""
    for key in ("r/2", "r/10", "r/1", "s/1", "r-x", "r.y"):
        await store.create(key, b"")
    assert await _keys(store, "r") == ["r-x", "r.y", "r/1", "r/10", "r/2"]
    assert await _keys(store, "r", after="r-x") == ["r.y", "r/1", "r/10", "r/2"]
    assert await _keys(store, "r/1") == ["r/1", "r/10"]
    assert await _keys(store, "r/1", after="r/1") == ["r/10"]
    assert await _keys(store, "r/1/") == []
    assert await _keys(store, "") == ["r-x", "r.y", "r/1", "r/10", "r/2", "s/1"]


@_promise
async def list_misses_no_page(store: Store, _: Path) -> None:
    """S3 lists a thousand keys at a time."""
    keys = [f"many/{number:06d}" for number in range(PAGED_KEYS)]
    for first in range(0, PAGED_KEYS, 50):
        await asyncio.gather(*(store.put(key, [b"x"]) for key in keys[first : first + 50]))
    assert await _keys(store, "many/") == keys
    assert await _keys(store, "many/", after=keys[2]) == keys[3:]
    await store.delete(keys)
    assert await _keys(store, "many/") == []


@_promise
async def delete_is_seen_and_may_be_repeated(store: Store, _: Path) -> None:
    """Two sweepers, or one that was killed, do no harm."""
    for key in ("d/a", "d/b", "d/c"):
        await store.create(key, b"x")
    await store.delete(["d/a", "missing", "d/b"])
    await store.delete(["d/a"])
    await store.delete([])
    assert await store.read("d/a") is None
    assert await _keys(store, "d/") == ["d/c"]
