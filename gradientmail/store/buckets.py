"""What the clients of buckets share: names under a prefix, parts of one size, one order."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from gradientmail.errors import StoreUnavailableError
from gradientmail.store.base import Entry, Fetched, check_key
from gradientmail.store.local import Offload
from gradientmail.store.streams import FileSink, sink_to

PART_BYTES = 16 << 20
PARTS_IN_FLIGHT = 4

PARTS_AT_ONCE = 8
"""Parts of all fetches of a store together: 128 MB of them in memory, whatever is fetched."""


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

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, start: int, tag: str | None, end: int | None = None) -> None:
        """Ask for the part from ``start`` on, after those before."""
        end = start + PART_BYTES if end is None else end
        self._asked.append(asyncio.ensure_future(self._seated(start, end, tag)))

    async def next(self) -> Part | None:
        """Return the first that is not done with; None: there is no such object."""
        return await self._asked[0]

    def done(self) -> None:
        """Let go of that one."""
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
    """Write an object into ``path``, a few parts ahead of what is written; see ``Store.fetch``."""
    parts = Parts(get, seats)
    try:
        parts.ask(0, None, end=max(1, min(limit_bytes, PART_BYTES)))
        first = await parts.next()
        if first is None:
            return None
        size_bytes, tag = first.size_bytes, first.tag
        starts = iter(range(len(first.data), size_bytes, PART_BYTES))
        del first  # or its data would stay in memory until the last part has come

        async def write_next(sink: FileSink) -> None:
            part = await parts.next()
            if part is None:
                raise StoreUnavailableError(f"the object for {path} was deleted meanwhile")
            for start in islice(starts, 1 + PARTS_IN_FLIGHT - len(parts)):
                parts.ask(start, tag)
            await offload(sink.write, part.data)

        with sink_to(path, limit_bytes) as sink:
            sink.expect(size_bytes)
            while parts:
                await write_next(sink)
                parts.done()
        return sink.fetched()
    finally:
        parts.close()


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
