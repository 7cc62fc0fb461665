"""UNKNOWN is asked again until there is an answer; what is ours is told from what is not."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store.base import Created
from gradientmail.store.memory import MemoryStore
from gradientmail.store.retrying import RetryingStore
from gradientmail.testing.clock import SkippingClock
from gradientmail.testing.faulty import Fault, FaultyStore, Plan, always, once, randomly, times

Scenario = Callable[[RetryingStore, MemoryStore], Awaitable[None]]


def run(plan: Plan, scenario: Scenario, deadline_s: float = 60.0) -> SkippingClock:
    clock, inner = SkippingClock(), MemoryStore()
    store = RetryingStore(FaultyStore(inner, plan), clock, random.Random(1), deadline_s=deadline_s)
    asyncio.run(scenario(store, inner))
    return clock


@pytest.mark.parametrize("fault", [Fault.NOT_APPLIED, Fault.LOSE_ANSWER, Fault.APPLY_LATE])
def test_a_create_whose_answer_is_lost_is_ours(fault: Fault) -> None:
    async def scenario(store: RetryingStore, inner: MemoryStore) -> None:
        assert await store.create("a", b"mine") is Created.CREATED
        assert await inner.read("a") == b"mine"

    run(times(3, "create", fault), scenario)


@pytest.mark.parametrize("fault", [Fault.NOT_APPLIED, Fault.LOSE_ANSWER, Fault.APPLY_LATE])
def test_a_create_that_came_second_exists_whatever_was_lost(fault: Fault) -> None:
    async def scenario(store: RetryingStore, inner: MemoryStore) -> None:
        await inner.create("a", b"theirs")
        assert await store.create("a", b"mine") is Created.EXISTS
        assert await inner.read("a") == b"theirs"

    run(times(3, "create", fault), scenario)


def test_a_lost_read_back_is_asked_again() -> None:
    async def scenario(store: RetryingStore, inner: MemoryStore) -> None:
        await inner.create("a", b"theirs")
        assert await store.create("a", b"mine") is Created.EXISTS

    run(once("read", Fault.NOT_APPLIED), scenario)


def test_what_exists_but_cannot_be_read_is_created_again() -> None:
    """A 409 taken for EXISTS, or an object deleted in between."""

    class ExistsOnce(MemoryStore):
        said = False

        async def create(self, key: str, data: bytes) -> Created:
            if not self.said:
                self.said = True
                return Created.EXISTS
            return await super().create(key, data)

    async def scenario() -> None:
        store = RetryingStore(ExistsOnce(), SkippingClock(), random.Random(1))
        assert await store.create("a", b"mine") is Created.CREATED

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["create", "put", "read", "fetch", "list", "delete"])
def test_every_operation_outlasts_a_storm(operation: str, tmp_path: Path) -> None:
    async def scenario(store: RetryingStore, inner: MemoryStore) -> None:
        await inner.create("old", b"x")
        await store.create("a", b"x")
        await store.put("b", [b"y"])
        assert await store.read("old", 0, 1) == b"x"
        assert await store.fetch("old", tmp_path / "out", limit_bytes=1) is not None
        assert [entry.key for entry in await store.list("", "a")] == ["b", "old"]
        await store.delete(key for key in ("a", "b"))
        assert await inner.read("a") is None

    run(times(6, operation, Fault.NOT_APPLIED), scenario)


def test_the_deadline_ends_it_and_tells_why() -> None:
    async def scenario(store: RetryingStore, _: MemoryStore) -> None:
        reason = r"create 'a': no definite answer in 60 s and \d+ attempts.*NOT_APPLIED"
        with pytest.raises(StoreUnavailableError, match=reason):
            await store.create("a", b"x")

    assert run(always("create", Fault.NOT_APPLIED), scenario).now() == pytest.approx(60.0)


def test_a_refusal_is_not_retried() -> None:
    async def scenario(store: RetryingStore, _: MemoryStore) -> None:
        with pytest.raises(StoreAccessError):
            await store.read("a")

    assert run(always("read", Fault.DENY), scenario).now() == 0.0


def test_waits_are_drawn_from_zero_to_a_bound_that_doubles() -> None:
    waits = []

    class Clock(SkippingClock):
        async def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            await super().sleep(seconds)

    async def scenario() -> None:
        store = FaultyStore(MemoryStore(), times(40, "read", Fault.NOT_APPLIED))
        await RetryingStore(store, Clock(), random.Random(3), deadline_s=1e6).read("a")

    asyncio.run(scenario())
    bounds = [min(5.0, 0.1 * 2**attempt) for attempt in range(40)]
    assert all(0 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
    assert sum(waits[10:]) / 30 == pytest.approx(2.5, rel=0.3)


def test_a_chain_of_creates_has_exactly_the_acknowledged_records() -> None:
    """Whatever is lost, each link has one winner, and the winner knows."""
    rng = random.Random(11)
    faults = (Fault.NOT_APPLIED, Fault.LOSE_ANSWER, Fault.APPLY_LATE)
    shared = FaultyStore(MemoryStore(), randomly(rng, dict.fromkeys(faults, 0.15)))

    async def append(name: int, count: int) -> set[bytes]:
        store = RetryingStore(shared, SkippingClock(), rng, deadline_s=1e6)
        won: set[bytes] = set()
        link = 0
        while len(won) < count:
            body = f"{name} {link}".encode()
            if await store.create(f"chain/{link:06d}", body) is Created.CREATED:
                won.add(body)
            link += 1
        return won

    async def scenario() -> None:
        acknowledged = set().union(*await asyncio.gather(*(append(n, 50) for n in range(4))))
        shared.plan = once("nothing", Fault.DENY)
        stored = {await shared.read(entry.key) for entry in await shared.list("chain/")}
        assert stored == acknowledged
        assert len(stored) == 200

    asyncio.run(scenario())
