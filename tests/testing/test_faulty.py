import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.faulty import Fault, FaultyStore, Plan, always, once, randomly, times


def run(plan: Plan, scenario: Callable[[FaultyStore, MemoryStore], Awaitable[None]]) -> None:
    inner = MemoryStore()
    asyncio.run(scenario(FaultyStore(inner, plan), inner))


def test_not_applied_leaves_nothing() -> None:
    async def scenario(store: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.create("a", b"x")
        assert await inner.read("a") is None
        await store.create("a", b"x")

    run(once("create", Fault.NOT_APPLIED), scenario)


def test_a_lost_answer_leaves_the_object() -> None:
    async def scenario(store: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.create("a", b"x")
        assert await inner.read("a") == b"x"

    run(once("create", Fault.LOSE_ANSWER), scenario)


def test_applied_late_is_before_the_next_operation() -> None:
    async def scenario(store: FaultyStore, inner: MemoryStore) -> None:
        with pytest.raises(StoreUnavailableError):
            await store.put("a", [b"x"])
        assert await inner.read("a") is None
        assert await store.read("a") == b"x"

    run(once("put", Fault.APPLY_LATE), scenario)


def test_a_storm_passes_after_so_many_calls() -> None:
    async def scenario(store: FaultyStore, _: MemoryStore) -> None:
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await store.list("")
        assert await store.list("") == []

    run(times(3, "list", Fault.NOT_APPLIED), scenario)


def test_a_prefix_can_be_denied() -> None:
    async def scenario(store: FaultyStore, _: MemoryStore) -> None:
        with pytest.raises(StoreAccessError):
            await store.read("mail/1")
        assert await store.read("commits/1") is None

    run(always("read", Fault.DENY, "mail/"), scenario)


def test_random_faults_come_at_their_rate() -> None:
    plan = randomly(random.Random(0), {Fault.DENY: 0.25})
    faults = [plan("read", "a") for _ in range(1000)]
    assert faults.count(Fault.DENY) == pytest.approx(250, abs=40)
    assert faults.count(None) == 1000 - faults.count(Fault.DENY)
