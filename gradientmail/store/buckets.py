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
from gradientmail.store.streams import sink_to

PART_BYTES = 16 << 20
PARTS_IN_FLIGHT = 4


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


async def fetch_parts(
    get: GetPart, path: Path, limit_bytes: int, offload: Offload
) -> Fetched | None:
    """Write an object into ``path``; see ``Store.fetch``.

    A few parts are on their way side by side, and go on while one is written.
    """
    first = await get(0, max(1, min(limit_bytes, PART_BYTES)), None)
    if first is None:
        return None
    with sink_to(path, limit_bytes) as sink:
        sink.expect(first.size_bytes)
        starts = iter(range(len(first.data), first.size_bytes, PART_BYTES))
        asked: deque[asyncio.Future[Part | None]] = deque()

        def ask() -> None:
            for start in islice(starts, PARTS_IN_FLIGHT - len(asked)):
                asked.append(asyncio.ensure_future(get(start, start + PART_BYTES, first.tag)))

        try:
            ask()
            await offload(sink.write, first.data)
            while asked:
                part = await asked.popleft()
                if part is None:
                    raise StoreUnavailableError(f"the object for {path} was deleted meanwhile")
                ask()
                await offload(sink.write, part.data)
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
    return sink.fetched()


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
