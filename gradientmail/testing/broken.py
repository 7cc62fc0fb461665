"""Stores that break one promise each, to prove that the conformance suite sees it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from gradientmail.errors import PayloadError, StoreUnavailableError
from gradientmail.store.base import Created, Entry, Fetched
from gradientmail.store.memory import MemoryStore
from gradientmail.testing import stores
from gradientmail.testing.clock import turn
from gradientmail.testing.stores import Promise

FIRST_PART_BYTES = 16 << 20


class CreateOverwrites(MemoryStore):
    """As a server that ignores If-None-Match."""

    async def create(self, key: str, data: bytes) -> Created:
        await self.put(key, [data])
        return Created.CREATED


class CreateLooksThenWrites(MemoryStore):
    """As a store that checks, and writes a moment later."""

    async def create(self, key: str, data: bytes) -> Created:
        if await self.read(key) is not None:
            return Created.EXISTS
        await turn()
        await self.put(key, [data])
        return Created.CREATED


class CreateWritesInPieces(MemoryStore):
    """As a file system where the object is seen while it is written."""

    async def create(self, key: str, data: bytes) -> Created:
        outcome = await super().create(key, data[: len(data) // 2])
        if outcome is Created.CREATED:
            await turn()
            await self.put(key, [data])
        return outcome


class CreateForgetsEmpty(MemoryStore):
    """As a store that takes an empty object for none."""

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        return await super().read(key, start, end) or None


class AnyKeyGoes(MemoryStore):
    """As a store on which a key can climb out of the run."""

    async def create(self, key: str, data: bytes) -> Created:
        return await super().create(key.replace("..", "dots") or "empty", data)


class KeysIgnoreCase(MemoryStore):
    """As the file systems of Windows and macOS."""

    async def create(self, key: str, data: bytes) -> Created:
        return await super().create(key.lower(), data)


class PutKeepsTheFirst(MemoryStore):
    """As a bucket with an object lock."""

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        await self.create(key, b"".join(buffers))


class PutWritesOnePart(MemoryStore):
    """As an upload that is completed with its first part only."""

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        await super().put(key, [b"".join(buffers)[:FIRST_PART_BYTES]])


class PutTakesTheFirstBuffer(MemoryStore):
    """As a client that is handed a list and sends its head."""

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        await super().put(key, buffers[:1])


class RangeIsInclusive(MemoryStore):
    """As HTTP's own ranges, whose end is the last byte."""

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        return await super().read(key, start, None if end is None else end + 1)


class MissingIsEmpty(MemoryStore):
    """As a store where reading what is not there gives nothing instead of none."""

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        return await super().read(key, start, end) or b""


class MissingIsAnOutage(MemoryStore):
    """As a client that takes a 404 of a download for a passing failure."""

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        fetched = await super().fetch(key, path, limit_bytes=limit_bytes)
        if fetched is None:
            raise StoreUnavailableError("404")
        return fetched


class FetchIgnoresTheLimit(MemoryStore):
    """As a client that trusts the object's size."""

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        return await super().fetch(key, path, limit_bytes=max(limit_bytes, 1 << 40))


class FetchLeavesAHalf(MemoryStore):
    """As a download that is broken off and not cleaned up."""

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        try:
            return await super().fetch(key, path, limit_bytes=limit_bytes)
        except PayloadError:
            path.write_bytes(b"half")  # noqa: ASYNC240
            raise


class FetchDigestsTheKey(MemoryStore):
    """As a digest of something other than the bytes."""

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        fetched = await super().fetch(key, path, limit_bytes=limit_bytes)
        return fetched and replace(fetched, digest="xxh3_128:" + "0" * 32)


class ListIsUnsorted(MemoryStore):
    """As a directory's own order."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return list(reversed(await super().list(prefix, after)))


class ListSortsByDirectory(MemoryStore):
    """As SeaweedFS, where "r/1" comes before "r-x"."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        found = await super().list(prefix, after)
        return sorted(found, key=lambda entry: entry.key.split("/"))


class ListAfterIsInclusive(MemoryStore):
    """As a listing that begins with the key it was told to begin after."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return [entry for entry in await super().list(prefix) if entry.key >= after]


class ListShowsOnePage(MemoryStore):
    """As a client that forgets the continuation token."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        return (await super().list(prefix, after))[:1000]


class ListWantsDirectories(MemoryStore):
    """As obstore, for which "r" is no prefix of "r-x"."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        directory = f"{prefix.rstrip('/')}/" if prefix else ""
        return await super().list(directory, after)


class TagsAreSizes(MemoryStore):
    """As a tag that misses a rewrite of the same length."""

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        found = await super().list(prefix, after)
        return [replace(entry, tag=str(entry.size_bytes)) for entry in found]


class DeleteNeedsThem(MemoryStore):
    """As Google Cloud Storage, where deleting what is missing fails."""

    async def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            if await self.read(key) is None:
                raise StoreUnavailableError("404")
            await super().delete([key])


class DeleteTakesOne(MemoryStore):
    """As a bulk delete that reads the first key only."""

    async def delete(self, keys: Iterable[str]) -> None:
        await super().delete(list(keys)[:1])


BROKEN_STORES: dict[type[MemoryStore], Promise] = {
    CreateOverwrites: stores.create_keeps_the_first_object,
    CreateLooksThenWrites: stores.create_has_one_winner_among_racers,
    CreateWritesInPieces: stores.create_shows_the_whole_object_or_none,
    CreateForgetsEmpty: stores.an_empty_object_is_an_object,
    AnyKeyGoes: stores.a_bad_key_is_refused_before_anything_happens,
    KeysIgnoreCase: stores.a_key_may_use_all_that_keys_may,
    PutKeepsTheFirst: stores.put_overwrites_and_changes_the_tag,
    PutWritesOnePart: stores.a_large_object_comes_back_whole,
    PutTakesTheFirstBuffer: stores.put_joins_buffers_of_any_kind,
    RangeIsInclusive: stores.read_cuts_a_range_at_the_end,
    MissingIsEmpty: stores.what_is_missing_is_none,
    MissingIsAnOutage: stores.what_is_missing_is_none,
    FetchIgnoresTheLimit: stores.fetch_refuses_what_is_too_large,
    FetchLeavesAHalf: stores.fetch_refuses_what_is_too_large,
    FetchDigestsTheKey: stores.fetch_digests_what_it_writes,
    ListIsUnsorted: stores.list_is_in_byte_order_and_after_is_exclusive,
    ListSortsByDirectory: stores.list_takes_any_prefix,
    ListAfterIsInclusive: stores.list_is_in_byte_order_and_after_is_exclusive,
    ListShowsOnePage: stores.list_misses_no_page,
    ListWantsDirectories: stores.list_takes_any_prefix,
    TagsAreSizes: stores.put_overwrites_and_changes_the_tag,
    DeleteNeedsThem: stores.delete_is_seen_and_may_be_repeated,
    DeleteTakesOne: stores.delete_is_seen_and_may_be_repeated,
}
"""Each broken store, and the promise it breaks."""
