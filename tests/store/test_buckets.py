import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.store.base import Entry, Fetched
from gradientmail.store.buckets import (
    PART_BYTES,
    PARTS_AT_ONCE,
    PARTS_IN_FLIGHT,
    BucketPrefix,
    Part,
    fetch_parts,
    safe_start,
    split,
    wanted,
)


def test_parts_are_of_one_size_and_the_last_is_the_rest() -> None:
    views = [memoryview(b"ab"), memoryview(b"cdefghi"), memoryview(b"j")]
    parts = {size: [b"".join(part) for part in split(views, size)] for size in (3, 5, 10, 11)}
    assert parts[3] == [b"abc", b"def", b"ghi", b"j"]
    assert parts[5] == [b"abcde", b"fghij"]
    assert parts[10] == parts[11] == [b"abcdefghij"]
    assert list(split([], 5)) == []


def test_a_part_is_the_memory_it_was_cut_from() -> None:
    memory = bytearray(b"abcdef")
    (first, *_) = split([memoryview(memory)], 4)
    memory[0] = ord("x")
    assert b"".join(first) == b"xbcd"


@pytest.mark.parametrize(
    ("prefix", "after", "start"),
    [
        ("commits/0000/", "", None),
        ("commits/0000/", "commits/0000/0000000012.json", "commits/0000/000000001"),
        ("r", "r-x", None),
        ("run/", "run/a-b", None),
        ("run/", "run/ab-c", "run/a"),
        ("my-run/", "my-run/ab", "my-run/a"),
    ],
)
def test_a_listing_starts_early_enough_for_any_order(
    prefix: str, after: str, start: str | None
) -> None:
    assert safe_start(prefix, after) == start


def test_what_a_server_sends_too_much_or_out_of_order_is_put_right() -> None:
    keys = ["r/2", "r/1", "r-x", "r/", "q", "r"]
    entries = [Entry(key, 0, "") for key in keys]
    assert [entry.key for entry in wanted(entries, "r", "r-x")] == ["r/", "r/1", "r/2"]


def test_names_are_keys_under_the_prefix() -> None:
    place = BucketPrefix("s3", "bucket", "runs/one/")
    assert place.name("a/b") == "runs/one/a/b"
    assert place.key("runs/one/a/b") == "a/b"
    assert str(place) == "s3://bucket/runs/one/"
    with pytest.raises(ValueError, match="not a key"):
        place.name("../two/a")


def large_object(parts: int, gone_after: int | None = None) -> Callable[..., object]:
    """Serve an object of so many parts; note how many are asked for at once, and of what tag."""
    size_bytes = (parts - 1) * PART_BYTES + 5
    serve_state = {"now": 0, "most": 0, "served": 0}

    async def get(start: int, end: int, tag: str | None) -> Part | None:
        assert (tag == "t") is bool(start)
        serve_state["now"] += 1
        serve_state["most"] = max(serve_state["most"], serve_state["now"])
        await asyncio.sleep(0)
        serve_state["now"] -= 1
        serve_state["served"] += 1
        if gone_after is not None and serve_state["served"] > gone_after:
            return None
        return Part(bytes(min(end, size_bytes) - start), size_bytes, "t")

    get.state = serve_state
    return get


def seats() -> asyncio.Semaphore:
    return asyncio.Semaphore(PARTS_AT_ONCE)


def fetch(get: Callable[..., object], path: Path) -> int:
    fetched = asyncio.run(fetch_parts(get, path, 1 << 40, asyncio.to_thread, seats()))
    assert path.stat().st_size == fetched.size_bytes
    return fetched.size_bytes


def test_parts_of_a_fetch_are_few_at_a_time_and_of_one_object(tmp_path: Path) -> None:
    get = large_object(parts=7)
    assert fetch(get, tmp_path / "out") == 6 * PART_BYTES + 5
    assert get.state["most"] == PARTS_IN_FLIGHT
    assert get.state["served"] == 7


def test_parts_go_on_coming_while_one_is_written(tmp_path: Path) -> None:
    serve = large_object(parts=3)

    async def fetched() -> int:
        last = asyncio.Event()

        async def get(start: int, end: int, tag: str | None) -> Part | None:
            part = await serve(start, end, tag)
            if start == 2 * PART_BYTES:
                last.set()
            return part

        async def offload(write: Callable[..., object], data: bytes) -> object:
            await asyncio.wait_for(last.wait(), timeout=10)
            return write(data)

        return (await fetch_parts(get, tmp_path / "out", 1 << 40, offload, seats())).size_bytes

    assert asyncio.run(fetched()) == 2 * PART_BYTES + 5


def test_a_disk_that_fills_ends_the_parts_on_their_way(tmp_path: Path) -> None:
    ended = []

    async def get(start: int, end: int, tag: str | None) -> Part:
        if start:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(tag)
        return Part(bytes(end), 3 * end, "t")

    async def offload(*_: object) -> object:
        await asyncio.sleep(0)  # the others are under way
        raise StoreFullError("full")

    async def fail() -> None:
        room = asyncio.Semaphore(3)
        with pytest.raises(StoreFullError):
            await fetch_parts(get, tmp_path / "out", 1 << 40, offload, room)
        for _ in range(3):
            await asyncio.wait_for(room.acquire(), timeout=1)
        assert ended == ["t", "t"]  # here: the end of a loop would have ended them too

    asyncio.run(fail())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("turns", range(8))
def test_a_cancelled_fetch_gives_back_its_seats(turns: int, tmp_path: Path) -> None:
    """At whatever it was, and cancelled twice."""

    async def get(start: int, end: int, tag: str | None) -> Part:
        await asyncio.sleep(0)
        return Part(bytes(end - start), 4 * PART_BYTES, tag or "t")

    async def offload(write: Callable[..., object], data: bytes) -> object:
        await asyncio.sleep(0)
        return write(data)

    async def cancel() -> None:
        room = asyncio.Semaphore(2)
        fetching = asyncio.ensure_future(
            fetch_parts(get, tmp_path / "out", 1 << 40, offload, room)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        fetching.cancel()
        await asyncio.sleep(0)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        for _ in range(2):
            await asyncio.wait_for(room.acquire(), timeout=1)

    asyncio.run(cancel())
    assert list(tmp_path.iterdir()) == []


def test_many_fetches_hold_few_parts_and_give_back_their_seats(tmp_path: Path) -> None:
    """Whatever becomes of them: written, gone, failed."""
    state = {"held": 0, "most": 0}

    async def fetch_all() -> list[object]:
        room = asyncio.Semaphore(3)

        async def get(start: int, end: int, tag: str | None) -> Part | None:
            await asyncio.sleep(0)
            if start == 2 * PART_BYTES:
                if tag == "gone":
                    return None
                if tag == "failed":
                    raise StoreUnavailableError("no")
            state["held"] += 1
            state["most"] = max(state["most"], state["held"])
            return Part(b"x" * (end - start), 5 * PART_BYTES, tag or tags.pop())

        async def offload(write: Callable[..., object], data: bytes) -> None:
            await asyncio.sleep(0)
            write(data)
            state["held"] -= 1

        tags = ["gone", "failed", *"abcd"]
        fetching = (
            fetch_parts(get, tmp_path / str(index), 1 << 40, offload, room) for index in range(6)
        )
        found = await asyncio.gather(*fetching, return_exceptions=True)
        for _ in range(3):
            await asyncio.wait_for(room.acquire(), timeout=1)
        return found

    found = asyncio.run(fetch_all())
    assert sum(isinstance(one, StoreUnavailableError) for one in found) == 2
    assert sum(isinstance(one, Fetched) for one in found) == 4
    assert state["most"] <= 3


def test_an_object_deleted_while_it_is_fetched_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="deleted meanwhile"):
        fetch(large_object(parts=3, gone_after=1), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
