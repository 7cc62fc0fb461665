"""Looks at the mail: each object is read once, whatever it is, and no look hangs."""

from pathlib import Path

import pytest

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.errors import StoreUnavailableError
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.testing.faulty import Fault, FaultyStore, always
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
    assert looks > POLLS
    assert meter.calls["fetch"] == 1  # the good one
    assert meter.calls["read"] == looks + 2  # each look at the commit, each header


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


async def test_an_answer_that_stays_away_is_the_callers_to_wait_for(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty = FaultyStore(bench.store, always("fetch", Fault.NOT_APPLIED))
    closer = FragmentCloser(bench.desk(store=faulty), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))
    async with running(closer.close_next(lambda: EVERYONE, lambda _: None)) as closing:
        await bench.clock.advance(5.0)
        with pytest.raises(StoreUnavailableError):
            closing.result()
