"""One term: rounds side by side, the head kept fresh, the end of a run."""

import logging
import random
from pathlib import Path
from typing import Any

import pytest

from gradientmail.closer.fleet import Fleet
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.closer.term import TermOfOffice
from gradientmail.operations.stopping import request_stop
from gradientmail.records import keys
from gradientmail.records.head import Head
from gradientmail.testing.faulty import Fault, FaultyStore, Plan, always, healthy
from tests.closer.bench import Bench, make_bench, running


async def term_of(bench: Bench, **over: Any) -> TermOfOffice:
    desk = bench.desk(**over)
    fleet = Fleet(desk.run.mailbox, bench.clock, run=bench.run.name, presence_s=60.0)
    await fleet.look()
    return TermOfOffice(desk, fleet, await bench.run.newest_of_all())


async def head_of(bench: Bench) -> Head:
    head = await bench.run.mailbox.head()
    assert head is not None
    return head


async def post(bench: Bench, learner: str, fragment: int) -> None:
    await bench.post(learner, await bench.run.newest(fragment))


async def test_the_head_says_what_is_committed_and_what_is_called(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2, in_flight=2, grace_s=10.0)
    await bench.show("ann", versions=(0, 0))
    await bench.show("bob", versions=(0, 0))
    async with running((await term_of(bench)).run(until_done=True)):
        await bench.clock.advance(1.0)
        assert (await head_of(bench)).versions == (0, 0)
        await post(bench, "ann", 1)
        await bench.clock.advance(2.0)
        assert (await head_of(bench)).calling == (1,)
        await bench.clock.advance(10.0)
        head = await head_of(bench)
        assert (head.versions, head.calling) == ((0, 1), ())


async def test_the_newest_commit_vouches_for_all_fragments_once_each_is_certain(
    tmp_path: Path,
) -> None:
    bench = await make_bench(tmp_path, fragments=2, in_flight=2)
    await bench.show("ann", versions=(0, 0))
    async with running((await term_of(bench)).run(until_done=True)):
        await post(bench, "ann", 0)
        await bench.clock.advance(2.0)
        assert (await head_of(bench)).voucher is None  # fragment 1 was read only once
        for fragment, versions in ((1, (1, 1)), (0, (2, 1)), (1, (2, 2))):
            await post(bench, "ann", fragment)
            await bench.clock.advance(2.0)
            found = await bench.run.vouched_of_all()
            assert tuple(version.number for version in found) == versions
            assert [p for p, version in enumerate(found) if version.record] == [fragment]


async def test_what_another_closer_committed_vouches_for_nothing(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2, in_flight=2)
    await bench.show("ann", versions=(0, 0))
    async with running((await term_of(bench)).run(until_done=True)):
        for fragment in (0, 1, 0):
            await post(bench, "ann", fragment)
            await bench.clock.advance(2.0)
        before = await head_of(bench)
        other = FragmentCloser(bench.desk("other"), await bench.run.newest(1))
        await post(bench, "ann", 1)
        ann = frozenset({"ann"})
        await bench.while_time_passes(other.close_next(lambda: ann, lambda _: None))
        await bench.clock.advance(10.0)
        head = await head_of(bench)
        assert head.versions == (2, 2)
        assert head.voucher == before.voucher
        assert [version.number for version in await bench.run.vouched_of_all()] == [2, 2]


async def test_rounds_of_different_fragments_do_not_wait_for_each_other(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2, in_flight=2)
    await bench.show("ann", versions=(0, 0))
    async with running((await term_of(bench)).run(until_done=True)):
        await post(bench, "ann", 1)
        await bench.clock.advance(2.0)
        assert (await head_of(bench)).versions == (0, 1)
        await post(bench, "ann", 0)
        await bench.clock.advance(2.0)
        assert (await head_of(bench)).versions == (1, 1)


async def test_no_round_is_open_that_no_learner_can_have_reached(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2, in_flight=1)
    await bench.show("ann", versions=(0, 0))
    async with running((await term_of(bench)).run(until_done=True)):
        await post(bench, "ann", 1)
        await bench.clock.advance(10.0)
        assert (await head_of(bench)).versions == (0, 0)
        await post(bench, "ann", 0)
        await bench.clock.advance(10.0)
        assert (await head_of(bench)).versions == (1, 1)


async def test_a_run_ends_with_its_last_round(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2, stop_after_rounds=3)
    await bench.show("ann", versions=(0, 0))
    async with running((await term_of(bench)).run(until_done=True)) as serving:
        for fragment in (0, 1, 0):
            await post(bench, "ann", fragment)
            await bench.clock.advance(2.0)
        serving.result()
    head = await head_of(bench)
    assert (head.versions, head.done) == ((2, 1), True)
    again = await term_of(bench)
    async with running(again.run(until_done=True)) as serving:
        await bench.clock.advance(1.0)
        serving.result()


async def test_without_until_done_a_closer_stays_after_the_end(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, stop_after_rounds=1)
    await bench.show("ann")
    async with running((await term_of(bench)).run(until_done=False)) as serving:
        await post(bench, "ann", 0)
        await bench.clock.advance(1000.0)
        assert not serving.done()
    assert (await head_of(bench)).done


async def test_a_stop_lets_learners_finish_and_leave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = await make_bench(tmp_path)
    await bench.show("ann")
    async with running((await term_of(bench)).run(until_done=True)) as serving:
        await request_stop(bench.store, "enough", rng=random.Random(0))
        await bench.clock.advance(10.0)
        head = await head_of(bench)
        assert (head.stopping, head.done) == (True, False)
        assert "a stop was requested (enough); waiting for the learners" in caplog.text
        await post(bench, "ann", 0)
        await bench.show("ann", count=2, left=True)
        await bench.clock.advance(30.0)
        serving.result()
    head = await head_of(bench)
    assert (head.versions, head.done) == ((1,), True)


@pytest.mark.parametrize(
    ("quorum", "plan"),
    [
        pytest.param(1, always("put", Fault.NOT_APPLIED, "fragments/"), id="an upload that fails"),
        pytest.param(2, healthy, id="a quorum that is never met"),
    ],
)
async def test_a_stop_waits_for_what_was_posted_last_however_long_it_takes(
    quorum: int, plan: Plan, tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path, quorum=quorum)
    faulty = FaultyStore(bench.store)
    await bench.show("ann")
    async with running((await term_of(bench, store=faulty)).run(until_done=True)) as serving:
        await request_stop(bench.store, "enough", rng=random.Random(0))
        await bench.clock.advance(10.0)
        faulty.plan = plan
        await post(bench, "ann", 0)
        await bench.show("ann", count=2, left=True)
        await bench.clock.advance(25.0)
        assert not serving.done()
        faulty.plan = healthy
        await bench.clock.advance(60.0)
        serving.result()
    head = await head_of(bench)
    assert (head.versions, head.done) == ((1,), True)


async def test_an_outage_of_the_store_is_waited_out(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty = FaultyStore(bench.store)
    await bench.show("ann")
    async with running((await term_of(bench, store=faulty)).run(until_done=True)) as serving:
        await bench.clock.advance(2.0)
        await post(bench, "ann", 0)
        faulty.plan = lambda operation, key: Fault.NOT_APPLIED
        await bench.clock.advance(500.0)
        assert not serving.done()
        faulty.plan = healthy
        await bench.clock.advance(5.0)
        assert (await head_of(bench)).versions == (1,)


async def test_a_damaged_record_that_a_sweep_meets_stops_no_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await make_bench(tmp_path, keep_versions=3)
    await bench.show("ann", versions=(9,))
    async with running((await term_of(bench)).run(until_done=True)):
        for version in range(1, 6):
            await post(bench, "ann", 0)
            await bench.clock.advance(2.0)
            if version == 3:
                await bench.store.put(keys.commit(0, 2), [b"damaged"])
        assert (await head_of(bench)).versions == (5,)
    assert "could not sweep: not a JSON record" in caplog.text


async def test_a_sweep_that_fails_stops_no_round(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, keep_versions=1)
    faulty = FaultyStore(bench.store, always("delete", Fault.NOT_APPLIED))
    await bench.show("ann", versions=(9,))
    async with running((await term_of(bench, store=faulty)).run(until_done=True)):
        for _ in range(4):
            await post(bench, "ann", 0)
            await bench.clock.advance(2.0)
        assert (await head_of(bench)).versions == (4,)
