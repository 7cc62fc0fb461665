"""The lease in the store: taken at once when free, after a silence when not, given up in time."""

import asyncio
import random
from pathlib import Path

import pytest

from gradientmail.closer.lease import Lease, SteppedDown
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.store.retrying import RetryingStore
from gradientmail.testing.clock import ManualClock
from gradientmail.testing.faulty import Fault, FaultyStore, always
from tests.closer.bench import running

LEASE_S = 30.0
NONCE = "1" * 32


def lease_of(store: Store, clock: ManualClock, name: str) -> Lease:
    log = get_logger("gradientmail.closer", closer=name)
    return Lease(Mailbox(store), clock, log, run="r1", name=name, lease_s=LEASE_S)


async def test_a_free_lease_is_taken_at_once() -> None:
    store, clock = MemoryStore(), ManualClock()
    lease = lease_of(store, clock, "one")
    assert await lease.acquire(NONCE) == lease.term == 1
    beat = await Mailbox(store).beat(1)
    assert beat is not None
    assert (beat.closer, beat.released) == ("one", False)


async def test_a_silent_holder_is_replaced_after_the_lease_time_and_not_before() -> None:
    store, clock = MemoryStore(), ManualClock(1e6)
    await lease_of(store, ManualClock(), "gone").acquire(NONCE)
    candidate = lease_of(store, clock, "next")
    async with running(candidate.acquire(NONCE)) as acquiring:
        await clock.advance(LEASE_S - 0.1)
        assert not acquiring.done()
        await clock.advance(0.1)
        assert acquiring.result() == 2


async def test_a_holder_that_beats_is_never_replaced() -> None:
    store, clock = MemoryStore(), ManualClock()
    holder, candidate = lease_of(store, clock, "holder"), lease_of(store, clock, "next")
    await holder.acquire(NONCE)
    async with running(holder.keep()) as keeping, running(candidate.acquire(NONCE)) as acquiring:
        await clock.advance(100 * LEASE_S)
        assert not keeping.done()
        assert not acquiring.done()


async def test_a_released_lease_is_taken_at_the_next_look() -> None:
    store, clock = MemoryStore(), ManualClock()
    holder, candidate = lease_of(store, clock, "holder"), lease_of(store, clock, "next")
    await holder.acquire(NONCE)
    async with running(candidate.acquire(NONCE)) as acquiring:
        await clock.advance(1.0)
        await holder.release()
        await clock.advance(LEASE_S / 4)
        assert acquiring.result() == 2


async def test_of_candidates_that_stand_together_one_holds_and_the_other_waits_on() -> None:
    store, clock = MemoryStore(), ManualClock()
    one, two = lease_of(store, clock, "one"), lease_of(store, clock, "two")
    async with (
        running(one.acquire("1" * 32)) as first,
        running(two.acquire("2" * 32)) as second,
    ):
        await clock.advance(1.0)
        assert [first.done(), second.done()].count(True) == 1
        await clock.advance(LEASE_S)
        assert {first.result(), second.result()} == {1, 2}


async def test_a_holder_steps_down_when_a_newer_term_was_taken() -> None:
    store, clock = MemoryStore(), ManualClock()
    stalled = lease_of(store, ManualClock(), "stalled")
    await stalled.acquire(NONCE)
    async with running(lease_of(store, clock, "next").acquire(NONCE)):
        await clock.advance(LEASE_S)
    awake = ManualClock(5.0)
    stalled._clock = awake
    async with running(stalled.keep()) as keeping:
        await awake.advance(LEASE_S)
        with pytest.raises(SteppedDown, match="term 2 was taken while we held 1"):
            keeping.result()


async def test_a_holder_that_cannot_renew_steps_down_before_another_may_stand() -> None:
    store, clock = FaultyStore(MemoryStore()), ManualClock()
    lease = lease_of(store, clock, "holder")
    await lease.acquire(NONCE)
    store.plan = always("put", Fault.NOT_APPLIED)
    async with running(lease.keep()) as keeping:
        await clock.advance(LEASE_S * 0.8)
        with pytest.raises(SteppedDown, match="could not renew"):
            keeping.result()


async def test_a_short_outage_costs_no_term() -> None:
    store, clock = FaultyStore(MemoryStore()), ManualClock()
    lease = lease_of(store, clock, "holder")
    await lease.acquire(NONCE)
    async with running(lease.keep()) as keeping:
        store.plan = always("put", Fault.NOT_APPLIED)
        await clock.advance(LEASE_S / 2)
        store.plan = lambda operation, key: None
        await clock.advance(10 * LEASE_S)
        assert not keeping.done()


async def test_a_holder_whose_store_hangs_steps_down_in_time() -> None:
    """Its store retries for longer than a lease lasts."""
    store, clock = FaultyStore(MemoryStore()), ManualClock()
    lease = lease_of(RetryingStore(store, clock, random.Random(0)), clock, "holder")
    await lease.acquire(NONCE)
    store.plan = always("put", Fault.NOT_APPLIED)
    async with running(lease.keep()) as keeping:
        await clock.advance(LEASE_S)
        with pytest.raises(SteppedDown, match="could not renew"):
            keeping.result()


async def test_a_term_counts_from_its_creation_however_long_its_first_beat_took() -> None:
    store, clock = FaultyStore(MemoryStore()), ManualClock()
    lease = lease_of(RetryingStore(store, clock, random.Random(0)), clock, "holder")
    store.plan = always("put", Fault.NOT_APPLIED)
    async with running(lease.acquire(NONCE)) as acquiring:
        await clock.advance(LEASE_S)
        store.plan = lambda operation, key: None
        await clock.advance(LEASE_S)
        assert acquiring.result() == 1
    async with running(lease.keep()) as keeping:
        await clock.advance(0.0)
        with pytest.raises(SteppedDown, match="could not renew"):
            keeping.result()


@pytest.mark.parametrize(
    "foreign",
    ["terms/", "terms/x.json", "terms/0000000009.beat", "terms/9999999999.json"],
)
async def test_foreign_objects_among_the_terms_are_let_lie(foreign: str, tmp_path: Path) -> None:
    class WithMarker(MemoryStore):
        pass

    store, clock = WithMarker(), ManualClock()
    store._objects[foreign] = b""
    assert await lease_of(store, clock, "one").acquire(NONCE) == 1


async def test_a_term_whose_bytes_are_torn_is_waited_out_like_any_other() -> None:
    store, clock = MemoryStore(), ManualClock()
    await store.create("terms/0000000001.json", b"")
    await store.put("terms/0000000001.beat", [b"{"])
    async with running(lease_of(store, clock, "one").acquire(NONCE)) as acquiring:
        await asyncio.sleep(0)
        assert not acquiring.done()
        await clock.advance(LEASE_S)
        assert acquiring.result() == 2
