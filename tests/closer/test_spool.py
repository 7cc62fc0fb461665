"""Local files: whole or not there, and only what is needed."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gradientmail.closer.spool import FETCHED_AT_ONCE, HashedFile, Spool
from gradientmail.errors import PayloadError, RecordError
from gradientmail.records.canonical import digest_of
from gradientmail.records.manifest import PayloadRef
from gradientmail.store.base import Fetched
from gradientmail.store.memory import MemoryStore

BODY = b"0123456789"


async def spool_of(tmp_path: Path, **objects: bytes) -> Spool:
    store = MemoryStore()
    for key, data in objects.items():
        await store.put(key, [data])
    return Spool(tmp_path / "spool", store)


def names(spool: Spool) -> set[str]:
    return {path.name for path in spool.path("a").parent.iterdir()}


async def test_an_object_is_brought_in_whole(tmp_path: Path) -> None:
    spool = await spool_of(tmp_path, a=BODY)
    fetched = await spool.fetch("a", limit_bytes=10)
    assert fetched is not None
    assert fetched.digest == digest_of(BODY)
    assert spool.path("a").read_bytes() == BODY
    assert await spool.fetch("missing", limit_bytes=10) is None
    assert names(spool) == {"a"}


async def test_what_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    spool = await spool_of(tmp_path, a=BODY)
    with pytest.raises(PayloadError):
        await spool.fetch("a", limit_bytes=9)
    assert names(spool) == set()


async def test_an_attempt_that_was_given_up_cannot_spoil_the_next(tmp_path: Path) -> None:
    """A thread that copies goes on after its task was cancelled: it must write elsewhere."""
    given_up: list[Path] = []
    begun = asyncio.Event()

    class Slow(MemoryStore):
        async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
            if not given_up:
                given_up.append(path)
                begun.set()
                await asyncio.Event().wait()
            return await super().fetch(key, path, limit_bytes=limit_bytes)

    store = Slow()
    await store.put("a", [BODY])
    spool = Spool(tmp_path / "spool", store)
    first = asyncio.create_task(spool.fetch("a", limit_bytes=10))
    await begun.wait()
    first.cancel()
    await spool.fetch("a", limit_bytes=10)
    given_up[0].write_bytes(b"torn")
    assert spool.path("a").read_bytes() == BODY


async def test_a_payload_is_fetched_once_and_must_be_what_its_record_says(tmp_path: Path) -> None:
    spool = await spool_of(tmp_path, a=BODY)
    good = PayloadRef(key="a", size_bytes=10, digest=digest_of(BODY))
    path = await spool.payload(good)
    path.write_bytes(b"ours now")
    assert (await spool.payload(good)).read_bytes() == b"ours now"
    spool.drop("a")
    with pytest.raises(RecordError, match="differs from its record's digest"):
        await spool.payload(PayloadRef(key="a", size_bytes=10, digest=digest_of(b"other")))
    with pytest.raises(RecordError, match="missing"):
        await spool.payload(PayloadRef(key="b", size_bytes=10, digest=digest_of(BODY)))
    assert not spool.path("a").exists()


async def test_only_what_is_named_is_kept_and_only_under_the_prefixes(tmp_path: Path) -> None:
    spool = await spool_of(tmp_path)
    for key in ("mail/0/a", "mail/0/b", "mail/0/b.3.part", "mail/1/a"):
        spool.path(key).write_bytes(BODY)
    spool.keep_only(["mail/0/a"], under=["mail/0/"])
    assert names(spool) == {"mail_0_a", "mail_1_a"}


def test_a_file_is_hashed_as_it_is_written_in_whatever_order(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    parts = [(start, data[start : start + 1000]) for start in range(0, len(data), 1000)]
    for order in (parts, parts[::-1], parts[1::2] + parts[::2]):
        with HashedFile(tmp_path / "file") as file:
            file.allocate(len(data))
            for start, part in order:
                file.write_at(start, memoryview(part))
            assert file.digest() == digest_of(data)
        assert (tmp_path / "file").read_bytes() == data


def test_a_file_is_hashed_from_any_thread(tmp_path: Path) -> None:
    data = random.Random(0).randbytes(1 << 20)
    starts = range(0, len(data), 4096)
    with HashedFile(tmp_path / "file") as file, ThreadPoolExecutor(4) as pool:
        file.allocate(len(data))
        list(pool.map(lambda at: file.write_at(at, memoryview(data)[at : at + 4096]), starts))
        assert file.digest() == digest_of(data)


async def test_no_more_objects_are_on_their_way_than_there_are_seats(tmp_path: Path) -> None:
    under_way: list[int] = []

    class Counting(MemoryStore):
        now = 0

        async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
            self.now += 1
            under_way.append(self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await super().fetch(key, path, limit_bytes=limit_bytes)

    store = Counting()
    for number in range(3 * FETCHED_AT_ONCE):
        await store.put(str(number), [BODY])
    spool = Spool(tmp_path / "spool", store)
    fetches = [spool.fetch(str(n), limit_bytes=10) for n in range(3 * FETCHED_AT_ONCE)]
    assert all(await asyncio.gather(*fetches))
    assert max(under_way) == FETCHED_AT_ONCE
