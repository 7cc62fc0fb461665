"""A closer's process: terms one after another, and a clean end."""

import asyncio
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import gradientmail as gm
from gradientmail.clock import SystemClock
from gradientmail.closer.aggregation import aggregate
from gradientmail.closer.daemon import Service
from gradientmail.config import NodeSettings, RunSettings
from gradientmail.errors import (
    RunNotFoundError,
    SettingsError,
    StoreAccessError,
    StoreUnavailableError,
)
from gradientmail.mailbox import Mailbox
from gradientmail.operations.creating import create_run
from gradientmail.store.base import Entry, Store
from gradientmail.store.local import LocalStore
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.testing.faulty import Fault, FaultyStore, always
from tests.closer.bench import Bench, inline, make_bench, running

LEASE_S = 30.0


def service_of(bench: Bench, name: str, **over: Any) -> Service:
    desk = bench.desk(name, **over)
    return Service(
        desk.run,
        name=name,
        clock=bench.clock,
        rng=desk.rng,
        offload=inline,
        spool=desk.spool,
    )


async def test_a_second_closer_stands_by_and_takes_over_from_the_same_bytes(
    tmp_path: Path,
) -> None:
    bench = await make_bench(tmp_path, lease_s=LEASE_S)
    await bench.show("ann")
    async with running(service_of(bench, "first").run(until_done=True)) as first:
        await bench.clock.advance(1.0)
        async with running(service_of(bench, "spare").run(until_done=True)):
            await bench.post("ann", await bench.run.newest(0))
            await bench.clock.advance(2.0)
            one = await bench.run.newest(0)
            first.cancel()
            await bench.show("ann", count=2)
            await bench.post("ann", one)
            await bench.clock.advance(LEASE_S)
            two = await bench.run.newest(0)
    assert [v.record.closer for v in (one, two) if v.record] == ["first", "spare"]


async def test_taking_over_costs_a_commit_a_fragment_however_long_the_run_and_the_fleet(
    tmp_path: Path,
) -> None:
    """Terms, beat, term, beat, head, learners, a commit for each fragment, and the head told."""
    bench = await make_bench(tmp_path, lease_s=LEASE_S)
    async with running(service_of(bench, "first").run(until_done=True)):
        for count in range(1, 6):
            await bench.show("ann", count=count)
            await bench.post("ann", await bench.run.newest(0))
            await bench.clock.advance(4.0)
    assert (await bench.run.newest(0)).number == 5
    for name in ("bob", "cat", "dan"):
        await bench.show(name)
    store = Listed(bench.store)
    async with running(service_of(bench, "second", store=store).run(until_done=True)):
        await bench.clock.advance(0.0)
    fragments = 1
    assert store.before_mail <= fragments + 7


class Listed(MeteredStore):
    """Remembers how much it was asked for before the first look at the mail."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner, Meter())
        self.before_mail = 0

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        if prefix.startswith("mail/") and not self.before_mail:
            self.before_mail = self.meter.requests
        return await super().list(prefix, after)


async def test_a_cancelled_closer_releases_its_lease(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    async with running(service_of(bench, "one").run(until_done=True)):
        await bench.clock.advance(1.0)
    beat = await bench.run.mailbox.beat(1)
    assert beat is not None
    assert beat.released


async def test_a_closer_that_lost_its_term_stands_again(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, lease_s=LEASE_S)
    faulty = FaultyStore(bench.store)
    async with running(service_of(bench, "one", store=faulty).run(until_done=True)) as serving:
        await bench.clock.advance(1.0)
        faulty.plan = always("put", Fault.NOT_APPLIED, "terms/")
        await bench.clock.advance(LEASE_S)
        faulty.plan = lambda operation, key: None
        await bench.clock.advance(2 * LEASE_S)
        assert not serving.done()
    assert await bench.run.mailbox.newest_term() == 2


async def test_a_term_is_kept_while_it_cannot_begin(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, lease_s=LEASE_S)
    faulty = FaultyStore(bench.store, always("list", Fault.NOT_APPLIED, "learners/"))
    async with (
        running(service_of(bench, "one", store=faulty).run(until_done=True)),
        running(service_of(bench, "spare").run(until_done=True)),
    ):
        await bench.clock.advance(3 * LEASE_S)
        assert await bench.run.mailbox.newest_term() == 1


async def test_a_refusal_ends_the_closer_with_what_to_fix(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty = FaultyStore(bench.store)
    faulty.plan = always("list", Fault.DENY)
    with pytest.raises(StoreAccessError, match="403"):
        await service_of(bench, "one", store=faulty).run(until_done=True)


# -- the public class ---------------------------------------------------------------------------


def make_run(url: Path, **settings: Any) -> None:
    quick = {"poll_s": 0.02, "lease_s": 0.5, "presence_s": 1.0, **settings}
    asyncio.run(
        create_run(
            LocalStore(url),
            nn.Linear(2, 1),
            RunSettings(**quick),
            clock=SystemClock(),
            rng=random.Random(0),
        )
    )


def test_request_stop_ends_it_from_another_thread_and_releases_the_lease(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    closer = gm.Closer(str(tmp_path / "run"), node=NodeSettings(spool_dir=str(tmp_path)))
    serving = threading.Thread(target=closer.run, daemon=True)
    serving.start()
    mailbox = Mailbox(LocalStore(tmp_path / "run"))
    while asyncio.run(mailbox.head()) is None:
        threading.Event().wait(0.01)
    closer.request_stop()
    serving.join(30.0)
    assert not serving.is_alive()
    beat = asyncio.run(mailbox.beat(1))
    assert beat is not None
    assert beat.released
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


async def test_no_sum_takes_the_threads_that_a_store_on_disk_beats_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"poll_s": 0.02, "lease_s": 5.0, "grace_s": 0.0, "stop_after_rounds": 1}
    bench = await make_bench(tmp_path, store=LocalStore(tmp_path / "run"), **short)
    await bench.post("ann", bench.run.origin(0))
    put_beat, summing, beaten = Mailbox.put_beat, threading.Event(), threading.Event()
    waits: list[bool] = []

    async def noted(self: Mailbox, beat: Any) -> None:
        began = summing.is_set()
        await put_beat(self, beat)
        if began:
            beaten.set()

    def slow(*arguments: Any) -> Any:
        summing.set()
        waits.append(beaten.wait(60.0))
        return aggregate(*arguments)

    monkeypatch.setattr(Mailbox, "put_beat", noted)
    monkeypatch.setattr("gradientmail.closer.making.aggregate", slow)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    await gm.Closer(str(tmp_path / "run")).serve(until_done=True)
    assert waits == [True]


def test_a_stop_that_comes_before_it_serves_is_kept(tmp_path: Path) -> None:
    make_run(tmp_path)
    closer = gm.Closer(str(tmp_path))
    closer.request_stop()
    closer.run()


def test_where_there_is_no_run_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="gradientmail init"):
        gm.Closer(str(tmp_path)).run()


def test_a_run_may_be_named_by_a_path(tmp_path: Path) -> None:
    url, layers = tmp_path / "run", nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    gm.init(url, layers, algorithm="local")
    with gm.Learner(url, layers, state_dir=tmp_path / "state") as learner:
        learner.step(tokens=1)
    with pytest.raises(SettingsError, match="need no closer"):
        gm.Closer(url).run()


def test_a_name_that_fits_no_key_is_refused() -> None:
    with pytest.raises(SettingsError, match="1 to 64 letters"):
        gm.Closer("memory://x", node=NodeSettings(name="a/b"))


def test_a_store_out_of_reach_is_tried_for_as_long_as_the_node_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    closer = gm.Closer("s3://bucket/run", node=NodeSettings(retry_deadline_s=0.2))
    with pytest.raises(StoreUnavailableError, match=r"no definite answer in 0\.2 s"):
        closer.run()
