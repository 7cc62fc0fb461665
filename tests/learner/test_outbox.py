"""Drafts on their way: encoded in order, posted through any outage, and nothing is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradientmail.algorithm import DELTA
from gradientmail.codecs.layout import layout
from gradientmail.codecs.streaming import decoded
from gradientmail.errors import StoreAccessError, StoreFullError
from gradientmail.learner.desk import Desk
from gradientmail.learner.outbox import UPLOADS_AT_ONCE, Outbox
from gradientmail.learner.posts import Draft, Trained
from gradientmail.learner.state import pack, unpack
from gradientmail.protocol.judging import Round, reason_to_reject
from gradientmail.records import canonical, keys
from gradientmail.records.contribution import ContributionRecord
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.clock import ManualClock
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.learner.lone import DIGEST, NONCE, make_desk


class Office:
    """An outbox at work, and what it said of drafts it could not send."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.refusals: list[tuple[str, str]] = []
        self.outbox = Outbox(desk, refused=lambda key, reason: self.refusals.append((key, reason)))
        self._posted = 0

    @property
    def store(self) -> Store:
        return self.desk.run.mailbox.store

    def draft(self, delta: Tensor, **fields: Any) -> Draft:
        self._posted += 1
        nonce = f"{self._posted:032x}"
        base = self.desk.run.origin(0)
        made = {
            "key": keys.mail(0, base.number, "ann", nonce),
            "nonce": nonce,
            "base": base,
            "delta": delta.clone(),
            "trained": Trained(4, 40, 8),
            "step_s": 0.5,
            "final": False,
            **fields,
        }
        return Draft(**made)

    async def pass_time(self, seconds: float = 1.0) -> None:
        assert isinstance(self.desk.clock, ManualClock)
        await self.desk.clock.advance(seconds)

    async def posted(self, key: str) -> Tensor:
        """Return what a reader decodes."""
        data = await self.store.read(key)
        assert data is not None
        return decoded(data, self.desk.run.algorithm.delta_format(4096), section=DELTA)

    def residual(self) -> Tensor:
        residual = self.outbox.residuals[0]
        assert residual is not None
        return residual


@contextlib.asynccontextmanager
async def office(store: Store | None = None, **settings: Any) -> AsyncIterator[Office]:
    """Open one; its outbox runs until the end of the block."""
    opened = Office(make_desk(store, **settings))
    running = asyncio.create_task(opened.outbox.run())
    try:
        yield opened
        assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def some_delta(seed: int) -> Tensor:
    """Return a vector whose one number is a tensor, and padding."""
    delta = torch.zeros(4096)
    delta[:1] = torch.randn(1, generator=torch.Generator().manual_seed(seed))
    return delta


# -- what is sent ---------------------------------------------------------------------------------


@pytest.mark.parametrize("uplink", ["F32", "BF16", "I8", "NF4"])
async def test_the_residual_is_what_was_to_be_sent_less_what_was(uplink: str) -> None:
    async with office(uplink=uplink) as at:
        residual = torch.zeros(4096)
        for seed in range(3):
            delta = some_delta(seed)
            draft = at.draft(delta)
            at.outbox.post(draft)
            await at.pass_time()
            sent = await at.posted(draft.key)
            assert torch.equal(at.residual(), (delta + residual) - sent)
            residual = at.residual().clone()


async def test_without_error_feedback_there_is_no_residual() -> None:
    async with office(uplink="I4", error_feedback=False) as at:
        at.outbox.post(at.draft(some_delta(0)))
        await at.pass_time()
        assert at.outbox.residuals == [None]


async def test_what_feedback_keeps_decays_by_each_round() -> None:
    """SparseLoCo (arXiv 2508.15706): e = beta e + delta; send = Q(e); e -= send."""
    async with office(uplink="SIGN", error_feedback_decay=0.95) as at:
        residual = torch.zeros(4096)
        for seed in range(3):
            delta = some_delta(seed)
            draft = at.draft(delta)
            at.outbox.post(draft)
            await at.pass_time()
            sent = await at.posted(draft.key)
            torch.testing.assert_close(at.residual(), 0.95 * residual + delta - sent)
            residual = at.residual().clone()


async def test_what_comes_back_is_sent_again_whole_whatever_the_decay() -> None:
    async with office(uplink="F32", error_feedback_decay=0.5) as at:
        first = at.draft(some_delta(1))
        at.outbox.post(first)
        await at.pass_time()
        at.outbox.give_back(0, first.key)
        second = at.draft(torch.zeros(4096))
        at.outbox.post(second)
        await at.pass_time()
        assert torch.equal(await at.posted(second.key), some_delta(1))


async def test_stochastic_rounding_follows_from_the_nonce_alone() -> None:
    posted = []
    for _ in range(2):
        async with office(uplink="I4", rounding="stochastic") as at:
            drafts = [at.draft(torch.linspace(-1, 1, 4096)) for _ in range(2)]
            for draft in drafts:
                at.outbox.residuals[0] = None
                at.outbox.post(draft)
            await at.pass_time()
            posted.append([await at.posted(draft.key) for draft in drafts])
    assert torch.equal(posted[0][0], posted[1][0])
    assert not torch.equal(posted[0][0], posted[0][1])


async def test_what_is_posted_says_what_a_closer_wants_to_know() -> None:
    async with office(uplink="I8") as at:
        draft = at.draft(some_delta(0), final=True)
        at.outbox.post(draft)
        await at.pass_time()
        data = await at.store.read(draft.key)
        assert data is not None
        form = at.desk.run.algorithm.delta_format(4096)
        header = form.check_header(data, len(data))
        assert header.metadata is not None
        record = canonical.decode(ContributionRecord, draft.key, header.metadata.encode())
        key = keys.parse_mail(draft.key)
        assert key is not None
        judged = Round(
            run="r1",
            fragment=0,
            version=1,
            anchors={0: DIGEST},
            precision="I8",
            tensors=1,
            weighs_samples=False,
            applied={},
        )
        assert reason_to_reject(judged, key, record) is None
        assert (record.steps, record.tokens, record.samples) == (4, 40, 8)
        assert (record.step_s, record.final) == (0.5, True)
        assert record.norms == (float((await at.posted(draft.key)).norm()),)


async def test_a_tensor_that_did_not_change_is_absent() -> None:
    async with office() as at:
        draft = at.draft(torch.zeros(4096))
        at.outbox.post(draft)
        await at.pass_time()
        assert b'\\"norms\\":[null]' in (await at.store.read(draft.key) or b"")


async def test_what_no_codec_takes_is_refused_and_leaves_nothing_behind() -> None:
    async with office(uplink="F16") as at:
        at.outbox.post(at.draft(some_delta(0)))
        await at.pass_time()
        residual = at.residual().clone()
        draft = at.draft(some_delta(1) * 1e9)
        at.outbox.post(draft)
        await at.pass_time()
        ((key, reason),) = at.refusals
        assert key == draft.key
        assert "above the largest" in reason
        assert await at.store.read(draft.key) is None
        assert torch.equal(at.residual(), residual)
        assert at.outbox.settled


# -- outages --------------------------------------------------------------------------------------


class Full(MemoryStore):
    """No room for mail, until there is."""

    full = True

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        if self.full:
            raise StoreFullError("no room by plan")
        await super().put(key, buffers)


async def test_a_post_is_tried_until_the_store_takes_it() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty) as at:
        draft = at.draft(some_delta(0))
        at.outbox.post(draft)
        await at.pass_time(100.0)
        assert not at.outbox.settled
        faulty.plan = healthy
        await at.pass_time()
        assert at.outbox.settled
        assert torch.equal(await at.posted(draft.key), some_delta(0))


async def test_a_full_store_is_waited_for() -> None:
    store = Full()
    async with office(store) as at:
        draft = at.draft(some_delta(0))
        at.outbox.post(draft)
        await at.pass_time(100.0)
        assert not at.outbox.settled
        store.full = False
        await at.pass_time()
        assert at.outbox.settled
        assert torch.equal(await at.posted(draft.key), some_delta(0))


async def test_orders_are_carried_out_in_order_though_uploads_overlap() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty, uplink="I4") as at:
        drafts = [at.draft(some_delta(seed)) for seed in range(3)]
        for draft in drafts:
            at.outbox.post(draft)
        at.outbox.give_back(0, drafts[0].key)
        await at.pass_time(5.0)
        faulty.plan = healthy
        await at.pass_time(5.0)
        assert await at.store.read(drafts[0].key) is None
        total = sum((some_delta(seed) for seed in range(3)), torch.zeros(4096))
        sent = await at.posted(drafts[1].key) + await at.posted(drafts[2].key)
        assert torch.allclose(sent + at.residual(), total, atol=1e-6)


async def test_waiting_until_settled_ends_with_the_last_acknowledgement() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty) as at:
        at.outbox.post(at.draft(some_delta(0)))
        at.outbox.post(at.draft(some_delta(1)))
        waiting = asyncio.create_task(at.outbox.until_settled())
        await at.pass_time(5.0)
        assert not waiting.done()
        faulty.plan = healthy
        await at.pass_time()
        assert waiting.done()


async def test_a_post_that_is_refused_ends_the_outbox() -> None:
    """Or its learner would hold for ever for a commit that nobody can make."""
    at = Office(make_desk(FaultyStore(MemoryStore(), always("put", Fault.DENY))))
    running = asyncio.create_task(at.outbox.run())
    at.outbox.post(at.draft(some_delta(0)))
    await at.pass_time()
    with pytest.raises(StoreAccessError, match="403"):
        await running


class Gated(MemoryStore):
    """Answers a put when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.open = asyncio.Event()

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        self.asked.append(key)
        await self.open.wait()
        await super().put(key, buffers)


async def test_uploads_go_side_by_side_and_of_those_that_wait_the_newest_first() -> None:
    store = Gated()
    async with office(store) as at:
        drafts = [at.draft(some_delta(seed)) for seed in range(UPLOADS_AT_ONCE + 3)]
        for draft in drafts:
            at.outbox.post(draft)
        at.outbox.forget(drafts[-2].key)  # its round is committed: it is not begun any more
        await at.pass_time()
        keys_in_order = [draft.key for draft in drafts]
        assert store.asked == keys_in_order[:UPLOADS_AT_ONCE]
        store.open.set()
        await at.pass_time()
        assert store.asked[UPLOADS_AT_ONCE:] == [keys_in_order[-1], keys_in_order[-3]]
        assert at.outbox.settled


# -- what became of it ----------------------------------------------------------------------------


async def test_what_no_commit_used_is_sent_with_the_next() -> None:
    async with office(uplink="I8") as at:
        first = at.draft(some_delta(0))
        at.outbox.post(first)
        await at.pass_time()
        at.outbox.give_back(0, first.key)
        second = at.draft(some_delta(1))
        at.outbox.post(second)
        await at.pass_time()
        whole = some_delta(0) + some_delta(1)
        sent = await at.posted(second.key)
        assert torch.allclose(sent + at.residual(), whole, atol=1e-6)
        assert torch.allclose(sent, whole, rtol=0.01)


@pytest.mark.parametrize("uplink", ["F32", "I4"])
async def test_a_statistic_is_not_sent_twice(uplink: str) -> None:
    """A learner's next contribution says the whole state of it."""
    desk = make_desk(uplink=uplink)
    both = layout([("w0", 1)], [("variance", 2)])
    desk = replace(desk, run=replace(desk.run, layouts=(both,)))
    outbox = Outbox(desk, refused=lambda key, reason: None)
    running = asyncio.create_task(outbox.run())
    delta = torch.zeros(both.numel)
    delta[0], delta[both.parameters_end], delta[both.parameters_end + 1] = 0.7, 0.9, 0.111
    draft = Draft(
        key=keys.mail(0, 0, "ann", NONCE),
        nonce=NONCE,
        base=desk.run.origin(0),
        delta=delta,
        trained=Trained(4, 40),
        step_s=0.5,
        final=False,
    )
    outbox.post(draft)
    outbox.give_back(0, draft.key)
    assert isinstance(desk.clock, ManualClock)
    await desk.clock.advance(1.0)
    residual = outbox.residuals[0]
    assert residual is not None
    assert residual[0] == torch.tensor(0.7), "what was trained is sent again"
    assert not residual[both.parameters_end :].any()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_was_given_back_is_no_longer_uploaded() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty) as at:
        draft = at.draft(some_delta(0))
        at.outbox.post(draft)
        await at.pass_time(3.0)
        at.outbox.give_back(0, draft.key)
        await at.pass_time()
        assert at.outbox.settled
        faulty.plan = healthy
        await at.pass_time(10.0)
        assert await at.store.read(draft.key) is None
        assert torch.equal(at.residual(), some_delta(0))


async def test_what_a_commit_spoke_of_is_forgotten_even_before_it_is_acknowledged() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.LOSE_ANSWER))
    async with office(faulty) as at:
        draft = at.draft(some_delta(0))
        at.outbox.post(draft)
        await at.pass_time(3.0)
        assert not at.outbox.settled
        at.outbox.forget(draft.key)
        await at.pass_time()
        assert at.outbox.settled
        assert torch.equal(at.residual(), torch.zeros(4096))


@pytest.mark.parametrize("fault", [None, Fault.LOSE_ANSWER])
async def test_what_is_forgotten_puts_off_no_saving(fault: Fault | None) -> None:
    """Right after a commit the state is saved: skipped, a kill would cost the steps before it."""
    faulty = FaultyStore(MemoryStore(), always("put", fault) if fault else healthy)
    async with office(faulty, uplink="I4") as at:
        draft = at.draft(some_delta(0))
        at.outbox.post(draft)
        await at.pass_time(3.0)
        at.outbox.forget(draft.key)
        assert saved(at)["postings"] == []
        assert at.outbox.settled
        await faulty.delete([draft.key])
        faulty.plan = healthy
        await at.pass_time(10.0)
        assert await at.store.read(draft.key) is None, "it is tried no more"


async def test_an_acknowledgement_puts_off_no_saving() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty) as at:
        at.outbox.post(at.draft(some_delta(0)))
        await at.pass_time(3.0)
        faulty.plan = healthy
        passing, postings = asyncio.create_task(at.pass_time(10.0)), []
        while not passing.done():
            postings.append(len(saved(at)["postings"]))
            await asyncio.sleep(0)
        assert set(postings) == {1, 0}


async def test_a_draft_that_is_not_encoded_yet_is_not_settled_by_being_forgotten() -> None:
    """Its residual is still to come, and a state saved now would lack it."""
    async with office(uplink="I4") as at:
        draft = at.draft(some_delta(0))
        at.outbox.post(draft)
        at.outbox.forget(draft.key)
        assert not at.outbox.settled
        assert at.outbox.state() is None
        await at.pass_time()
        assert at.outbox.settled
        assert at.residual().any()


async def test_what_an_earlier_incarnation_posted_is_given_back_from_the_store() -> None:
    store = MemoryStore()
    async with office(store) as before:
        draft = before.draft(some_delta(0))
        before.outbox.post(draft)
        await before.pass_time()
    async with office(store) as at:
        at.outbox.give_back(0, draft.key)
        at.outbox.give_back(0, keys.mail(0, 0, "ann", "f" * 32))  # swept meanwhile
        await at.pass_time()
        assert torch.equal(at.residual(), some_delta(0))
        assert at.outbox.settled


async def test_a_contribution_that_is_damaged_in_the_store_is_lost_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    async with office(store) as at:
        key = keys.mail(0, 0, "ann", "f" * 32)
        await store.put(key, [b"torn"])
        at.outbox.give_back(0, key)
        await at.pass_time()
        assert at.outbox.settled
        assert at.outbox.residuals == [None]
        assert key in caplog.text


async def test_giving_back_waits_out_an_outage() -> None:
    faulty = FaultyStore(MemoryStore())
    async with office(faulty) as before:
        draft = before.draft(some_delta(0))
        before.outbox.post(draft)
        await before.pass_time()
    async with office(faulty) as at:
        faulty.plan = always("read", Fault.NOT_APPLIED)
        at.outbox.give_back(0, draft.key)
        await at.pass_time(10.0)
        assert not at.outbox.settled
        faulty.plan = healthy
        await at.pass_time()
        assert torch.equal(at.residual(), some_delta(0))


async def test_starting_over_drops_the_residual() -> None:
    async with office(uplink="I4") as at:
        at.outbox.post(at.draft(some_delta(0)))
        at.outbox.start_over(0)
        assert not at.outbox.settled
        await at.pass_time()
        assert at.outbox.residuals == [None]
        assert at.outbox.settled


# -- restarts -------------------------------------------------------------------------------------


def saved(at: Office) -> Any:
    """Return the state as it comes back from the disk."""
    state = at.outbox.state()
    assert state is not None
    return unpack(pack(state))


async def test_a_state_saved_in_an_outage_posts_the_same_bytes_under_the_same_name() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty, uplink="I4") as before:
        draft = before.draft(some_delta(0))
        before.outbox.post(draft)
        await before.pass_time(3.0)
        state, residual = saved(before), before.residual().clone()
        faulty.plan = healthy
        await before.pass_time(3.0)
        bytes_of_before = await before.store.read(draft.key)
    await faulty.delete([draft.key])  # as if it had been killed before that
    async with office(faulty, uplink="I4") as at:
        at.outbox.restore(state)
        await at.pass_time()
        assert await at.store.read(draft.key) == bytes_of_before
        assert torch.equal(at.residual(), residual)
        assert at.outbox.settled


async def test_what_is_acknowledged_is_not_posted_again_after_a_restart() -> None:
    async with office() as before:
        draft = before.draft(some_delta(0))
        before.outbox.post(draft)
        await before.pass_time()
        assert saved(before)["postings"] == []


async def test_what_was_restored_can_be_given_back_or_forgotten_before_it_is_posted() -> None:
    faulty = FaultyStore(MemoryStore(), always("put", Fault.NOT_APPLIED))
    async with office(faulty) as before:
        drafts = [before.draft(some_delta(seed)) for seed in range(2)]
        for draft in drafts:
            before.outbox.post(draft)
        await before.pass_time(3.0)
        state = saved(before)
    async with office(faulty) as at:
        at.outbox.restore(state)
        at.outbox.forget(drafts[0].key)
        at.outbox.give_back(0, drafts[1].key)
        await at.pass_time()
        faulty.plan = healthy
        await at.pass_time(10.0)
        assert at.outbox.settled
        assert torch.equal(at.residual(), some_delta(1))
        assert await at.store.list("mail/") == []


async def test_what_was_to_come_back_from_the_store_comes_back_after_a_restart() -> None:
    faulty = FaultyStore(MemoryStore())
    async with office(faulty) as first:
        draft = first.draft(some_delta(0))
        first.outbox.post(draft)
        await first.pass_time()
    async with office(faulty) as second:
        faulty.plan = always("read", Fault.NOT_APPLIED)
        second.outbox.give_back(0, draft.key)
        await second.pass_time(3.0)
        state = saved(second)
    faulty.plan = healthy
    async with office(faulty) as third:
        third.outbox.restore(state)
        await third.pass_time()
        assert torch.equal(third.residual(), some_delta(0))
        assert third.outbox.settled
