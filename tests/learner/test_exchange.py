"""A learner's side of the store: what it believes, what it fetches, how it is seen."""

import asyncio
import contextlib
import dataclasses
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.errors import RecordError
from gradientmail.learner.desk import Desk
from gradientmail.learner.exchange import Exchange
from gradientmail.learner.posts import Arrival, Draft, Trained
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.operations.stopping import request_stop
from gradientmail.protocol.polling import QUIET_POLLS
from gradientmail.records import keys
from gradientmail.records.head import Head
from gradientmail.records.presence import Presence
from gradientmail.run import Version, open_run
from gradientmail.store.base import Store
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.testing.clock import turn
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.closer.bench import POLL_S, Bench, inline, make_bench

PRESENCE_S = 60.0
LOOK_S = QUIET_POLLS * POLL_S
"""So often a learner looks that has nothing on its way."""
OVERDUE_S = 39 * POLL_S
"""After this long without news a learner looks for itself."""


class Remote:
    """A learner's exchange with a run whose rounds the test closes."""

    def __init__(self, bench: Bench, *, name: str = "ann", store: Store | None = None) -> None:
        self.bench = bench
        run = bench.run
        if store is not None:
            run = dataclasses.replace(run, mailbox=Mailbox(store))
        self.desk = Desk(
            run=run,
            name=name,
            incarnation=f"{random.Random(name).getrandbits(128):032x}",
            device=torch.device("cpu"),
            clock=bench.clock,
            rng=random.Random(name),
            offload=inline,
            meter=Meter(),
            log=get_logger("gradientmail.learner", learner=name),
        )
        self.news = 0
        self.seen: list[tuple[bool, bool]] = []
        """At each news, whether a version had arrived, and whether training was to end."""
        self.exchange = Exchange(self.desk, news=self._count)
        self.closer = FragmentCloser(bench.desk(), bench.run.origin(0))

    def _count(self) -> None:
        self.news += 1
        self.seen.append((bool(self.exchange._arrivals), self.exchange.ending))

    async def pass_time(self, seconds: float = LOOK_S) -> None:
        await self.bench.clock.advance(seconds)

    async def commit(self, fill: float = 1.0, **changes: Any) -> Version:
        """Let bob's mail make the next version."""
        await self.bench.post("bob", self.closer.present, fill=fill, **changes)
        bob = frozenset({"bob"})
        closing = self.closer.close_next(lambda: bob, lambda _: None)
        return await self.bench.while_time_passes(closing)

    async def tell(self, *versions: int, **fields: Any) -> None:
        """Write a head."""
        head = {"run": self.bench.run.name, "term": 1, "closer": "c", **fields}
        await self.bench.run.mailbox.put_head(Head(versions=versions, **head))

    def arrived(self) -> list[Arrival]:
        return self.exchange.take()[0]

    async def expected(self, version: Version) -> Tensor:
        """Return the values that a version publishes."""
        return await self.bench.params(version.params)

    async def presence(self) -> Presence:
        presence = await self.bench.run.mailbox.presence(self.desk.name)
        assert presence is not None
        return presence


@contextlib.asynccontextmanager
async def joined(bench: Bench, **over: Any) -> AsyncIterator[Remote]:
    """A learner that has joined; its exchange runs until the end of the block."""
    remote = Remote(bench, **over)
    await remote.exchange.join({})
    assert [arrival.version.number for arrival in remote.arrived()] == [0]
    running = asyncio.create_task(remote.exchange.run())
    try:
        yield remote
        if running.done():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# -- versions -------------------------------------------------------------------------------------


async def test_a_joiner_gets_the_newest_version_of_every_fragment(tmp_path: Path) -> None:
    remote = Remote(await make_bench(tmp_path))
    for _ in range(3):
        version = await remote.commit()
    await remote.exchange.join({})
    (arrival,) = remote.arrived()
    assert arrival.version == version
    assert torch.equal(arrival.params, await remote.expected(version))


async def vouched(bench: Bench, remote: Remote) -> tuple[Version, Version]:
    """Return versions 1 of two fragments, of which the second one's commit vouches for both."""
    first = await remote.commit()
    remote.closer = FragmentCloser(bench.desk(), bench.run.origin(1), lambda: (first.standing,))
    second = await remote.commit()
    await remote.tell(1, 1, voucher=remote.closer.voucher)
    return first, second


async def test_a_joiner_goes_on_from_what_a_commit_vouches_for(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2, downlink="I8")
    remote = Remote(bench)
    first, second = await vouched(bench, remote)
    meter = Meter()
    remote = Remote(bench, name="late", store=MeteredStore(bench.store, meter))
    await remote.exchange.join({})
    assert meter.requests == 4  # the head, one commit, and the two payloads
    arrivals = {one.version.fragment: one for one in remote.arrived()}
    for version in (first, second):
        arrival = arrivals[version.fragment]
        assert arrival.version.standing == version.standing
        assert torch.equal(arrival.params, await remote.expected(version))
    running = asyncio.create_task(remote.exchange.run())
    remote.closer = FragmentCloser(bench.desk(), first)
    newer = await remote.commit()
    await remote.tell(2, 1)
    await remote.pass_time()
    (arrival,) = remote.arrived()
    assert arrival.history == (newer.record,)
    assert torch.equal(arrival.params, await remote.expected(newer))
    running.cancel()


async def test_who_comes_back_reads_the_records_that_may_name_it(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2)
    remote = Remote(bench)
    await remote.exchange.join({})
    held = {one.version.fragment: one for one in remote.arrived()}
    first, second = await vouched(bench, remote)
    remote = Remote(bench, name="back")
    await remote.exchange.join(held)
    assert [one.history for one in remote.arrived()] == [(first.record,), (second.record,)]


async def test_a_version_the_head_tells_of_arrives_with_the_records_on_the_way(
    tmp_path: Path,
) -> None:
    async with joined(await make_bench(tmp_path, max_staleness=1)) as remote:
        versions = [await remote.commit() for _ in range(4)]
        await remote.tell(4)
        await remote.pass_time()
        (arrival,) = remote.arrived()
        assert arrival.version == versions[3]
        assert torch.equal(arrival.params, await remote.expected(versions[3]))
        records = [version.record for version in versions]
        assert list(arrival.history) == [*records[:2], records[3]]
        assert remote.news > 0


async def test_versions_that_were_not_taken_keep_their_records(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path)) as remote:
        for number in (1, 2):
            await remote.commit()
            await remote.tell(number)
            await remote.pass_time()
        (arrival,) = remote.arrived()
        assert [record.version for record in arrival.history] == [1, 2]


@pytest.mark.parametrize(
    "settings",
    [{"downlink": "I8"}, {"downlink": "I4"}, {"downlink": "BF16"}],
    ids=lambda settings: settings["downlink"],
)
async def test_an_update_leads_to_the_same_bits_as_the_parameters(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    async with joined(await make_bench(tmp_path, **settings)) as remote:
        for number in range(1, 5):
            version = await remote.commit(fill=0.1 * number)
            await remote.tell(number)
            await remote.pass_time()
            (arrival,) = remote.arrived()
            assert version.update is not None
            assert torch.equal(arrival.params, await remote.expected(version))
        assert remote.desk.meter.down_bytes == 0  # the bench's store is not metered


async def test_an_update_is_fetched_where_it_leads_on_and_parameters_where_not(
    tmp_path: Path,
) -> None:
    async with joined(await make_bench(tmp_path, downlink="I8")) as remote:
        first = await remote.commit()
        await remote.bench.store.delete([first.params.key])  # not needed by those who follow
        await remote.tell(1)
        await remote.pass_time()
        assert [arrival.version for arrival in remote.arrived()] == [first]


async def test_a_damaged_update_is_passed_over_for_the_parameters(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path, downlink="I8")) as remote:
        version = await remote.commit()
        assert version.update is not None
        await remote.bench.store.put(version.update.key, [b"torn"])
        await remote.tell(1)
        await remote.pass_time()
        (arrival,) = remote.arrived()
        assert torch.equal(arrival.params, await remote.expected(version))


async def test_an_empty_round_costs_no_fetch(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path)) as remote:
        version = await remote.commit(run="run-other")
        assert version.record is not None
        assert version.record.empty
        await remote.bench.store.delete([version.params.key])
        await remote.tell(1)
        await remote.pass_time()
        assert [arrival.version for arrival in remote.arrived()] == [version]


async def test_a_reader_that_finds_its_payload_swept_jumps_to_the_newest(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path)) as remote:
        first = await remote.commit()
        await remote.bench.store.delete([first.params.key])
        await remote.tell(1)
        await remote.pass_time(5.0)
        assert not remote.arrived()
        second = await remote.commit()
        await remote.pass_time()
        assert [arrival.version for arrival in remote.arrived()] == [second]


async def test_a_payload_that_stays_away_from_the_newest_version_is_an_alarm(
    tmp_path: Path,
) -> None:
    """Nobody sweeps it: who looks for ever would never say what to repair."""
    remote = Remote(await make_bench(tmp_path))
    first = await remote.commit()
    await remote.bench.store.delete([first.params.key])
    with pytest.raises(RecordError, match="missing or damaged") as raised:
        await remote.bench.while_time_passes(remote.exchange.join({}))
    assert raised.value.key == first.params.key


async def test_a_payload_that_stays_away_holds_up_no_other_fragment(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=2)
    remote = Remote(bench)
    await remote.exchange.join({})
    remote.arrived()
    running = asyncio.create_task(remote.exchange.run())
    first = await remote.commit()
    await bench.store.delete([first.params.key])
    remote.closer = FragmentCloser(bench.desk(), bench.run.origin(1))
    await remote.tell(1, 0)
    await remote.pass_time()
    for number in (1, 2):
        remote.exchange.expect(1)
        version = await remote.commit()
        await remote.tell(1, number)
        await remote.pass_time(2 * POLL_S)
        assert [arrival.version for arrival in remote.arrived()] == [version]
    with pytest.raises(RecordError, match="missing or damaged"):
        await bench.while_time_passes(running)


# -- the head is a hint ---------------------------------------------------------------------------


async def post(remote: Remote) -> None:
    """Post something, whose commit is then expected."""
    nonce = "f" * 32
    remote.exchange.post(
        Draft(
            key=keys.mail(0, 0, "ann", nonce),
            nonce=nonce,
            base=remote.bench.run.origin(0),
            delta=remote.bench.delta(0, 1.0),
            trained=Trained(1, 1),
            step_s=0.1,
            final=False,
        )
    )


async def no_head(remote: Remote) -> None:
    await remote.bench.store.delete([keys.HEAD])


@pytest.mark.parametrize(
    "mislead",
    [
        no_head,
        lambda remote: remote.bench.store.put(keys.HEAD, [b""]),
        lambda remote: remote.bench.store.put(keys.HEAD, [b"\xff garbage"]),
        lambda remote: remote.tell(0),
        lambda remote: remote.tell(),
        lambda remote: remote.tell(1_000_000),
        lambda remote: remote.tell(1_000_000, 5, 6, 7, calling=(9,), term=10_000),
        lambda remote: remote.tell(1, run="run-other"),
        lambda remote: remote.tell(0, stopping=True),
        lambda remote: remote.tell(0, done=True),
    ],
    ids=[
        "missing",
        "empty",
        "garbage",
        "too-low",
        "of-no-fragment",
        "too-high",
        "of-too-many-fragments",
        "of-another-run",
        "stopping-falsely",
        "done-falsely",
    ],
)
async def test_whatever_the_head_says_a_commit_that_is_due_arrives(
    mislead: Any, tmp_path: Path
) -> None:
    async with joined(await make_bench(tmp_path, presence_s=1e6)) as remote:
        await mislead(remote)
        await post(remote)
        await remote.pass_time()
        version = await remote.commit()
        await mislead(remote)
        await remote.pass_time(OVERDUE_S)
        assert [arrival.version for arrival in remote.arrived()] == [version]
        assert not remote.exchange.ending


async def test_a_call_is_news(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path)) as remote:
        await remote.tell(0, calling=(0,))
        await remote.pass_time()
        assert remote.exchange.calling == {0}
        assert remote.news == 1 + 1  # joining, and the call
        await remote.tell(0)
        await remote.pass_time()
        assert remote.exchange.calling == frozenset()


async def test_a_stop_that_a_person_asked_for_ends_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with joined(await make_bench(tmp_path)) as remote:
        await request_stop(remote.bench.store, "enough", rng=random.Random(0))
        await remote.tell(0, stopping=True)
        await remote.pass_time()
        assert remote.exchange.ending
        assert not remote.exchange.finished
        assert caplog.text.count("a stop was requested (enough); leaving") == 1


async def test_the_last_round_ends_training_even_if_no_head_says_so(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path, stop_after_rounds=1)) as remote:
        await post(remote)
        await remote.commit()
        await remote.pass_time(OVERDUE_S)
        assert remote.exchange.ending
        assert remote.exchange.finished


async def test_the_last_version_never_arrives_without_the_news_that_it_is_the_last(
    tmp_path: Path,
) -> None:
    """Or a learner would take steps that nobody will ever see."""
    async with joined(await make_bench(tmp_path, stop_after_rounds=1)) as remote:
        await remote.commit()
        await remote.tell(1, done=True)
        await remote.pass_time()
        assert (True, False) not in remote.seen[1:]
        assert (True, True) in remote.seen


async def test_who_joins_a_run_that_has_ended_is_told_at_once(tmp_path: Path) -> None:
    remote = Remote(await make_bench(tmp_path, stop_after_rounds=1))
    await remote.commit()
    await remote.exchange.join({})
    assert remote.exchange.ending
    held = remote.arrived()[0]
    restored = Remote(remote.bench)
    await restored.exchange.join({0: held})
    assert restored.exchange.ending


# -- what it costs --------------------------------------------------------------------------------


async def test_joining_costs_a_commit_a_fragment_however_many_rounds_there_were(
    tmp_path: Path,
) -> None:
    """Beside the payloads: manifest twice, head, a commit for each fragment, stop, presence."""
    costs = []
    for rounds in (1, 9):
        bench = await make_bench(tmp_path / str(rounds))
        builder = Remote(bench)
        for _ in range(rounds):
            await builder.commit()
        await builder.tell(rounds)
        meter = Meter()
        run = await open_run(MeteredStore(bench.store, meter))
        remote = Remote(bench, store=run.mailbox.store)
        await remote.exchange.join({})
        running = asyncio.create_task(remote.exchange.run())
        await turn()
        await bench.clock.advance(0.0)
        running.cancel()
        payloads = 1
        costs.append(meter.requests - payloads)
        assert meter.calls["list"] == 0
    fragments = 1
    assert costs == [fragments + 5] * 2


async def test_a_commit_that_is_due_is_read_by_its_own_key(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path, presence_s=1e6)) as remote:
        await remote.bench.store.delete([keys.HEAD])
        await post(remote)
        version = await remote.commit()
        await remote.pass_time(POLL_S)
        assert [arrival.version for arrival in remote.arrived()] == [version]


async def test_a_round_costs_a_put_a_commit_and_a_payload(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, presence_s=1e6)
    meter = Meter()
    async with joined(bench, store=MeteredStore(bench.store, meter)) as remote:
        await remote.pass_time(0.0)
        before = meter.snapshot()
        await post(remote)
        await remote.pass_time(0.0)
        await remote.commit()
        await remote.tell(1)
        await remote.pass_time(POLL_S)
        assert len(remote.arrived()) == 1
        cost = meter.calls - before.calls
        assert cost["put"] == 1
        assert cost["read"] in (2, 3)  # before the first commit nobody knows when it comes


async def test_a_quiet_minute_costs_less_than_a_read_a_poll(tmp_path: Path) -> None:
    meter = Meter()
    bench = await make_bench(tmp_path)
    async with joined(bench, store=MeteredStore(bench.store, meter)) as remote:
        work(remote)
        before = meter.snapshot()
        await remote.pass_time(60.0)
        cost = meter.calls - before.calls
        assert cost["list"] == 0
        assert cost["read"] <= 60.0 / POLL_S / 2


# -- outages --------------------------------------------------------------------------------------


async def test_an_outage_is_waited_out(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty = FaultyStore(bench.store)
    async with joined(bench, store=faulty) as remote:
        faulty.plan = lambda operation, key: Fault.NOT_APPLIED
        version = await remote.commit()
        await remote.tell(1)
        await remote.pass_time(500.0)
        assert not remote.arrived()
        faulty.plan = healthy
        await remote.pass_time(QUIET_POLLS * POLL_S)
        assert [arrival.version for arrival in remote.arrived()] == [version]


# -- presence -------------------------------------------------------------------------------------


def work(remote: Remote, **fields: Any) -> None:
    """Let the training side be at work now."""
    progress = remote.exchange.progress
    at = remote.bench.clock.now()
    remote.exchange.progress = dataclasses.replace(progress, at=at, **fields)


async def test_a_learner_is_seen_for_as_long_as_it_trains_and_no_longer(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path, presence_s=PRESENCE_S)) as remote:
        for _ in range(10):
            work(remote)
            await remote.pass_time(PRESENCE_S / 4)
        count = (await remote.presence()).count
        assert count >= 10
        await remote.pass_time(2 * PRESENCE_S)
        silent = (await remote.presence()).count
        assert silent <= count + 5
        await remote.pass_time(100 * PRESENCE_S)
        assert (await remote.presence()).count == silent
        work(remote)
        await remote.pass_time(PRESENCE_S / 4)
        assert (await remote.presence()).count > silent


async def test_waiting_for_a_commit_is_no_silence(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path, presence_s=PRESENCE_S)) as remote:
        work(remote, holding=True)
        await remote.pass_time(PRESENCE_S)
        count = (await remote.presence()).count
        await remote.pass_time(100 * PRESENCE_S)
        assert (await remote.presence()).count >= count + 400


async def test_presence_says_what_the_learner_has_done(tmp_path: Path) -> None:
    async with joined(await make_bench(tmp_path)) as remote:
        work(remote, versions=(3,), steps=7, tokens=70, loss=0.5, posted=2, applied=1)
        await remote.pass_time(PRESENCE_S)
        presence = await remote.presence()
        assert (presence.versions, presence.steps, presence.tokens) == ((3,), 7, 70)
        assert (presence.loss, presence.posted, presence.applied) == (0.5, 2, 1)
        assert (presence.incarnation, presence.left) == (remote.desk.incarnation, False)
        await remote.exchange.leave()
        assert (await remote.presence()).left


async def test_twins_are_told_of_each_other_and_a_restart_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = await make_bench(tmp_path, presence_s=PRESENCE_S)
    await bench.show("ann", count=9)  # what an earlier incarnation left behind
    async with joined(bench) as remote:
        for _ in range(5):
            work(remote)
            await remote.pass_time(PRESENCE_S)
        assert "another process" not in caplog.text
        for count in range(5):
            await bench.show("ann", count=10 + count)
            work(remote)
            await remote.pass_time(PRESENCE_S / 4)
        assert "another process trains under our name" in caplog.text


async def test_a_presence_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, presence_s=PRESENCE_S)
    faulty = FaultyStore(bench.store, always("put", Fault.NOT_APPLIED, keys.LEARNERS))
    async with joined(bench, store=faulty) as remote:
        await remote.pass_time(PRESENCE_S)
        version = await remote.commit()
        await remote.tell(1)
        await remote.pass_time(QUIET_POLLS * POLL_S)
        assert [arrival.version for arrival in remote.arrived()] == [version]
