"""What the clients of buckets share: names under a prefix, parts of one size, one order."""

import asyncio
import re
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path

from gradientmail.errors import StoreUnavailableError
from gradientmail.store.base import Entry, Fetched, check_key
from gradientmail.store.local import Offload
from gradientmail.store.streams import sink_to

PART_BYTES = 16 << 20
PARTS_IN_FLIGHT = 4

FIRST_BYTES = 1 << 20
"""What a read asks for first: as good as every record, in one request. The rest comes in parts."""

PARTS_AT_ONCE = 8
"""Parts of all fetches and reads of a store together, on their way or not yet written: 128 MB."""


@dataclass(frozen=True, slots=True)
class BucketPrefix:
    """The objects of ``scheme://bucket`` under ``prefix``, which is empty or ends in a slash."""

    scheme: str
    bucket: str
    prefix: str

    def name(self, key: str) -> str:
        """Return the name in the bucket of the object ``key``."""
        return f"{self.prefix}{check_key(key)}"

    def key(self, name: str) -> str:
        """Return what ``name`` is called here; a foreign object's may be no key."""
        return name.removeprefix(self.prefix)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of an object, and the size and tag of the whole."""

    data: bytes | memoryview
    size_bytes: int
    tag: str | None


GetPart = Callable[[int, int, str | None], Awaitable[Part | None]]
"""Returns ``[start, end)`` of an object that still has the tag, if one is given."""


class Parts:
    """Parts of one object, asked for ahead and taken in order.

    Each has one of ``seats`` from when it is asked for until it is done with: it lies in memory.
    Seats are taken in the order of parts, so some object always has the one that it needs next.
    """

    def __init__(self, get: GetPart, seats: asyncio.Semaphore) -> None:
        self._get, self._seats = get, seats
        self._asked: deque[asyncio.Future[Part | None]] = deque()

    def ask(self, start: int, end: int, tag: str | None) -> None:
        """Ask for ``[start, end)``, after those before."""
        self._asked.append(asyncio.ensure_future(self._seated(start, end, tag)))

    async def next(self) -> Part | None:
        """Return the first that is not done with; None: there is no such object."""
        return await self._asked[0]

    async def write(
        self,
        write: Callable[[bytes | memoryview], object],
        start: int,
        stop: int,
        tag: str | None,
        offload: Offload,
    ) -> None:
        """``write`` what was asked for, then ``[start, stop)``; ask for a few parts ahead.

        Raises:
            StoreUnavailableError: the object was deleted meanwhile.
        """
        starts = iter(range(start, stop, PART_BYTES))

        def ask(count: int) -> None:
            for at in islice(starts, count):
                self.ask(at, min(at + PART_BYTES, stop), tag)

        async def write_next() -> None:
            part = await self.next()
            if part is None:
                raise StoreUnavailableError("the object was deleted meanwhile")
            ask(1 + PARTS_IN_FLIGHT - len(self._asked))
            await offload(write, part.data)

        ask(PARTS_IN_FLIGHT - len(self._asked))
        while self._asked:
            await write_next()  # a call: its part is out of memory when it returns
            self._asked.popleft()
            self._seats.release()

    def close(self) -> None:
        """Let go of all, at once or when they end."""
        for one in self._asked:
            one.cancel()
            one.add_done_callback(self._ended)

    def _ended(self, one: asyncio.Future[Part | None]) -> None:
        if not one.cancelled() and one.exception() is None and one.result() is not None:
            self._seats.release()

    async def _seated(self, start: int, end: int, tag: str | None) -> Part | None:
        await self._seats.acquire()
        part = None
        try:
            part = await self._get(start, end, tag)
        finally:
            if part is None:
                self._seats.release()
        return part


async def fetch_parts(
    get: GetPart, path: Path, limit_bytes: int, offload: Offload, seats: asyncio.Semaphore
) -> Fetched | None:
    """Write an object into ``path``; see ``Store.fetch``."""
    parts = Parts(get, seats)
    try:
        parts.ask(0, max(1, min(limit_bytes, PART_BYTES)), None)
        first = await parts.next()
        if first is None:
            return None
        start, size_bytes, tag = len(first.data), first.size_bytes, first.tag
        del first  # or its data would stay in memory until the last part has come
        with sink_to(path, limit_bytes) as sink:
            sink.expect(size_bytes)
            await parts.write(sink.write, start, size_bytes, tag, offload)
        return sink.fetched()
    finally:
        parts.close()


async def read_parts(
    get_first: GetPart,
    get: GetPart,
    start: int,
    end: int | None,
    offload: Offload,
    seats: asyncio.Semaphore,
) -> bytes | None:
    """Return ``[start, end)`` of an object, what is beyond the first of it by ``get``.

    See ``Store.read``.
    """
    end = sys.maxsize if end is None else end
    first = await get_first(start, min(end, start + FIRST_BYTES), None)
    if first is None:
        return None
    data = BytesIO()
    data.write(first.data)
    parts = Parts(get, seats)
    try:
        rest, stop = start + len(first.data), min(end, first.size_bytes)
        await parts.write(data.write, rest, stop, first.tag, offload)
    finally:
        parts.close()
    return data.getvalue()[: end - start]


def split(views: Sequence[memoryview], part_bytes: int) -> Iterator[list[memoryview]]:
    """Cut the concatenation of ``views`` into parts of ``part_bytes``; the last is smaller."""
    part: list[memoryview] = []
    room = part_bytes
    for view in views:
        rest = view
        while len(rest):
            part.append(rest[:room])
            rest = rest[room:]
            room -= len(part[-1])
            if not room:
                yield part
                part, room = [], part_bytes
    if part:
        yield part


def safe_start(prefix: str, after: str) -> str | None:
    """Return a name before every key that ``list(prefix, after)`` wants, in any server's order.

    SeaweedFS sorts "a/b" before "a-b" and starts behind the whole directory it is told. So the
    start is cut before the first character that sorts below the slash, and by one more.
    """
    common = prefix + re.split("[-.]", after.removeprefix(prefix))[0]
    certain = common.rpartition("/")[2]
    return common[:-1] if after and len(certain) > 1 else None


def wanted(entries: Iterable[Entry], prefix: str, after: str) -> Sequence[Entry]:
    """Return the entries that ``list(prefix, after)`` promises, in order."""
    asked = [entry for entry in entries if entry.key.startswith(prefix) and entry.key > after]
    return sorted(asked, key=lambda entry: entry.key)
