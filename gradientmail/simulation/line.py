"""A process's line to the bucket: a ``Store`` with latencies and the weather's faults.

A request that has left is applied whether or not its process still lives to hear the answer.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from gradientmail.errors import StoreError, StoreFullError, StoreUnavailableError
from gradientmail.simulation.bucket import NOW, Bucket
from gradientmail.simulation.process import Process
from gradientmail.simulation.weather import Fault, Weather
from gradientmail.store.base import Created, Entry, Fetched, Store, check_key
from gradientmail.store.streams import byte_views, sink_to

T = TypeVar("T")

TIMEOUT_S = 10.0
LATEST_S = 200.0
STALEST_S = 30.0
SLOWEST_S = 60.0
REPEATED_S = 60.0

SEEING = frozenset({"read", "fetch", "list"})
"""Operations that change nothing."""


class Event(NamedTuple):
    """One thing that happened: ``what`` is an operation, or what became of its process."""

    at: float
    process: str
    what: str
    key: str
    outcome: str


class Line(Store):
    """What ``process`` knows of ``bucket``; every operation is entered in ``log``.

    Attributes:
        process: Its name.
        began, ended: When it was drawn, and when the last answer came.
        operations: How many operations were sent.
        failed: How many of them had no answer.
        most_open: How many were under way at once, at most.
        most_bytes: How many bytes were on their way to the bucket at once, at most.
        sent: Bytes of each object that it sent, whether or not it arrived.
        kill_at: (n, "before" or "after"): the process dies when its n-th operation, counted from
            1, is about to be sent, or has just been applied.
    """

    def __init__(
        self,
        process: Process,
        bucket: Bucket,
        weather: Weather,
        log: list[Event],
        rng: random.Random,
    ) -> None:
        self.operations = self.failed = self.most_open = self.most_bytes = 0
        self.process = process.name
        self.began = self.ended = process.now
        self._open = self._bytes = 0
        self.sent: dict[str, int] = {}
        self.kill_at: tuple[int, str] | None = None
        self._process, self._bucket, self._weather = process, bucket, weather
        self._log, self._rng = log, rng
        self._latency_s = rng.uniform(0.005, 0.15)

    # -- the six operations ------------------------------------------------------------------

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        create = partial(self._create, key, data)
        return await self._send("create", check_key(key), create, len(data))

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        data = b"".join(byte_views(buffers))
        await self._send("put", check_key(key), partial(self._put, key, data), len(data))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""

        def see(as_of: float) -> bytes | None:
            data = self._bucket.read(key, as_of)
            return None if data is None else data[start:end]

        return await self._send("read", check_key(key), see)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        data = await self._send("fetch", check_key(key), partial(self._bucket.read, key))
        if data is None:
            return None
        with sink_to(path, limit_bytes) as sink:
            sink.write(data)
        return sink.fetched()

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        return await self._send("list", prefix, partial(self._bucket.list, prefix, after))

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``. It may stop half-way."""
        for key in keys:
            await self._send("delete", check_key(key), partial(self._delete, key))

    async def close(self) -> None:
        """See ``Store.close``."""

    # -- one operation -----------------------------------------------------------------------

    async def _send(
        self, operation: str, key: str, apply: Callable[[float], T], size_bytes: int = 0
    ) -> T:
        """Send a request; its answer comes once the process runs, if it ever does."""
        self._process.require_alive()
        self.operations += 1
        self._open += 1
        self._bytes += size_bytes
        if size_bytes:
            self.sent[key] = size_bytes
        self.most_open = max(self.most_open, self._open)
        self.most_bytes = max(self.most_bytes, self._bytes)
        try:
            return cast("T", await self._sent(operation, key, apply))
        finally:
            self._open -= 1
            self._bytes -= size_bytes
            self.ended = self._process.now

    def _sent(self, operation: str, key: str, apply: Callable[[float], T]) -> asyncio.Future[Any]:
        """Let a request leave; return the answer to come."""
        process, loop = self._process, asyncio.get_running_loop()
        answer = process.promise()
        killed = ""
        if self.kill_at is not None and self.kill_at[0] == self.operations:
            killed = self.kill_at[1]
        if killed == "before":
            process.kill()
            process.require_alive()
        fault = self._weather.draw(process.name, operation, process.now, self._rng)
        self._enter(operation, key, fault or "")
        if fault is None and not killed and operation in SEEING:
            loop.call_later(self._way_s() + self._way_s(), self._see, answer, key, apply)
            return answer
        course = self._course(fault)
        results: list[T] = []

        def arrive() -> None:
            results.append(self._applied(fault, key, apply))
            if results[-1] is None and operation in ("read", "fetch"):
                self._enter("absent", key, "")
            if killed == "after":
                process.kill()

        def come_back() -> None:
            error = course.error
            self.failed += error is not None
            process.keep(answer, error(f"{operation} {key!r}: {fault}") if error else results[-1])

        for delay_s in course.applied_s:
            loop.call_later(delay_s, arrive)
        loop.call_later(course.answered_s, come_back)
        return answer

    def _see(
        self, answer: asyncio.Future[Any], key: str, apply: Callable[[float], object]
    ) -> None:
        """Answer what changes nothing with what there is now: one instant in place of two."""
        found = apply(NOW)
        if found is None:
            self._enter("absent", key, "")
        self._process.keep(answer, found)

    def _way_s(self) -> float:
        return self._latency_s * (0.5 + 1.5 * self._rng.random())

    def _course(self, fault: Fault | None) -> "_Course":
        rng = self._rng
        up_s, down_s = self._way_s(), self._way_s()
        unknown = StoreUnavailableError
        match fault:
            case Fault.REFUSED | Fault.STORM | Fault.CONFLICT:
                course = _Course((), up_s + down_s, unknown)
            case Fault.OUTAGE:
                course = _Course((), rng.uniform(0.0, TIMEOUT_S), unknown)
            case Fault.FULL:
                course = _Course((), up_s + down_s, StoreFullError)
            case Fault.LOST:
                course = _Course((up_s,), rng.uniform(up_s, TIMEOUT_S), unknown)
            case Fault.LATE:
                course = _Course((LATEST_S ** rng.random(),), TIMEOUT_S, unknown)
            case Fault.HIDDEN:
                course = _Course((up_s,), up_s + down_s, unknown)
            case Fault.TWICE:
                again_s = up_s + down_s + rng.uniform(0.0, REPEATED_S)
                course = _Course((up_s, again_s), up_s + down_s)
            case Fault.REPEATED:
                course = _Course((up_s, up_s + down_s), up_s + 2 * down_s)
            case Fault.SLOW:
                up_s += rng.uniform(0.0, SLOWEST_S)
                course = _Course((up_s,), up_s + down_s)
            case _:
                course = _Course((up_s,), up_s + down_s)
        return course

    def _applied(self, fault: Fault | None, key: str, apply: Callable[[float], T]) -> T:
        """Let a request take effect, or see what it sees."""
        then = self._process.now - self._rng.random() * STALEST_S
        match fault:
            case Fault.STALE:
                return apply(max(then, self._bucket.born(key)))
            case Fault.UNSEEN:
                return apply(then)
            case Fault.PAGE:
                return cast("T", self._torn(cast("Sequence[Entry]", apply(NOW))))
            case Fault.TRUNCATED | Fault.FLIPPED:
                found = apply(NOW)
                return cast("T", self._damaged(fault, found)) if found else found
            case _:
                return apply(NOW)

    def _damaged(self, fault: Fault, found: object) -> bytes:
        """Cut or spoil what was read."""
        data = bytearray(cast("bytes", found))
        at = self._rng.randrange(len(data))
        if fault is Fault.TRUNCATED:
            return bytes(data[:at])
        data[at] ^= 1 << self._rng.randrange(8)
        return bytes(data)

    def _torn(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Lose a page of a listing."""
        first, last = sorted(self._rng.randrange(len(entries) + 1) for _ in range(2))
        return [*entries[:first], *entries[last:]]

    def _enter(self, what: str, key: str, outcome: str) -> None:
        self._log.append(Event(self._process.now, self._process.name, what, key, outcome))

    def _create(self, key: str, data: bytes, _: float) -> Created:
        outcome = self._bucket.create(self._process.name, key, data)
        own = self._bucket.read(key) == data
        self._enter(outcome.value, key, "its own" if own else "another's")
        return outcome

    def _put(self, key: str, data: bytes, _: float) -> None:
        self._bucket.put(self._process.name, key, data)

    def _delete(self, key: str, _: float) -> None:
        self._bucket.delete(self._process.name, key)


class _Course(NamedTuple):
    """When a request is applied, and when and how it is answered."""

    applied_s: tuple[float, ...]
    answered_s: float
    error: type[StoreError] | None = None
