"""Looks at the mail: each object is read once, whatever it is, and no look hangs."""

from pathlib import Path

import pytest

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.errors import StoreUnavailableError
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.closer.bench import EVERYONE, make_bench, running

POLLS = 50


async def test_mail_is_read_once_however_long_the_round_stays_open(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    meter = Meter()
    closer = FragmentCloser(
        bench.desk(store=MeteredStore(bench.store, meter)), bench.run.origin(0)
    )
    await bench.post("ann", bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0), run="run-other")
    async with running(closer.close_next(lambda: EVERYONE, lambda _: None)):
        await bench.clock.advance(float(POLLS))
    looks = meter.calls["list"]
    assert POLLS / 2 < looks < POLLS
    assert meter.calls["fetch"] == 1  # the good one
    assert 2 < meter.calls["read"] <= 2 + looks / 2  # each header; some looks see to the commit


async def test_a_foreign_object_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await make_bench(tmp_path)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    bench.store._objects["mail/0000/"] = b""  # type: ignore[attr-defined]
    await bench.store.put("mail/0000/0000000000/notes.txt", [b"x"])
    async with running(closer.close_next(lambda: EVERYONE, lambda _: None)):
        await bench.clock.advance(float(POLLS))
    assert caplog.text.count("ignoring a foreign object") == 1


@pytest.mark.parametrize("fault", [Fault.DENY, Fault.NOT_APPLIED])
async def test_one_object_that_cannot_be_read_holds_up_no_round(
    fault: Fault, tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path)
    key = await bench.post("ann", bench.run.origin(0))
    await bench.post("bob", bench.run.origin(0))
    faulty = FaultyStore(bench.store, always("fetch", fault, key))
    closer = FragmentCloser(bench.desk(store=faulty), bench.run.origin(0))
    version = await bench.while_time_passes(
        closer.close_next(lambda: EVERYONE, lambda _: None), seconds=20.0
    )
    assert version.record is not None
    assert [one.learner for one in version.record.participants] == ["bob"]
    assert [one.key for one in version.record.rejected] == [key]


async def test_an_outage_makes_no_mail_unreadable(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty = FaultyStore(bench.store)
    closer = FragmentCloser(bench.desk(store=faulty), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))
    for _ in range(9):
        faulty.plan = lambda operation, key: Fault.NOT_APPLIED
        with pytest.raises(StoreUnavailableError):
            await closer.close_next(lambda: EVERYONE, lambda _: None)
    faulty.plan = healthy
    version = await bench.while_time_passes(
        closer.close_next(lambda: frozenset({"ann"}), lambda _: None)
    )
    assert version.record is not None
    assert [one.learner for one in version.record.participants] == ["ann"]


async def test_mail_judged_before_an_outage_is_not_read_again_after_it(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    meter = Meter()
    faulty = FaultyStore(MeteredStore(bench.store, meter))
    closer = FragmentCloser(bench.desk(store=faulty), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))
    async with running(closer.close_next(lambda: EVERYONE, lambda _: None)) as collecting:
        await bench.clock.advance(3.0)
        faulty.plan = lambda operation, key: Fault.NOT_APPLIED
        await bench.clock.advance(3.0)
        with pytest.raises(StoreUnavailableError):
            collecting.result()
    faulty.plan = healthy
    await bench.while_time_passes(closer.close_next(lambda: frozenset({"ann"}), lambda _: None))
    assert meter.calls["fetch"] == 2  # the contribution and the parameters


async def test_a_quorum_nobody_can_meet_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await make_bench(tmp_path, quorum=3)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))
    async with running(closer.close_next(lambda: frozenset({"ann"}), lambda _: None)):
        await bench.clock.advance(10.0)
    assert caplog.text.count("the quorum of 3 is not met") == 1


async def test_what_a_cleaner_took_from_the_spool_is_judged_again(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    desk = bench.desk()
    closer = FragmentCloser(desk, bench.run.origin(0))
    keys = [await bench.post(learner, bench.run.origin(0)) for learner in sorted(EVERYONE)]
    three = EVERYONE | {"cid"}
    async with running(closer.close_next(lambda: three, lambda _: None)) as collecting:
        await bench.clock.advance(10.0)
        assert all(desk.spool.path(key).exists() for key in keys)
        desk.spool.drop(keys[0])
        await bench.post("cid", bench.run.origin(0))
        await bench.clock.advance(10.0)
        with pytest.raises(StoreUnavailableError, match=r"No such file"):
            collecting.result()
    version = await bench.while_time_passes(closer.close_next(lambda: three, lambda _: None))
    assert version.record is not None
    assert {one.learner for one in version.record.participants} == three
