"""Only what no reader can need is deleted, and never before it was announced."""

from pathlib import Path

import pytest

from gradientmail.closer.fleet import Fleet
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.closer.sweeper import Sweeper
from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.mailbox import Mailbox
from gradientmail.records import keys
from gradientmail.run import Version
from gradientmail.store.base import Created
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.closer.bench import Bench, make_bench

PRESENCE_S = 60.0
ANN = frozenset({"ann"})


class Rounds:
    """A fragment whose rounds ann fills, or leaves empty, and a sweeper of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.closer = FragmentCloser(bench.desk(), bench.run.origin(0))
        self.fleet = Fleet(
            bench.run.mailbox, bench.clock, run=bench.run.name, presence_s=PRESENCE_S
        )
        self.sweeper = Sweeper(bench.desk(), self.fleet, 0)

    async def close(self, *, empty: bool = False) -> Version:
        wrong = {"run": "run-other"} if empty else {}
        await self.bench.post("ann", self.closer.present, **wrong)
        closing = self.closer.close_next(lambda: ANN, lambda _: None)
        return await self.bench.while_time_passes(closing)

    async def sweep(self) -> None:
        await self.fleet.look()
        await self.sweeper.sweep(self.closer.present)

    async def versions_left(self) -> set[int]:
        entries = await self.bench.store.list(keys.payloads_of(0))
        return {parsed[1] for entry in entries if (parsed := keys.parse_payload(entry.key))}

    async def bases_left(self) -> set[int]:
        entries = await self.bench.store.list(keys.mail_of(0))
        return {parsed.base for entry in entries if (parsed := keys.parse_mail(entry.key))}


async def test_the_newest_versions_are_kept_and_older_ones_go_with_their_mail(
    tmp_path: Path,
) -> None:
    rounds = Rounds(await make_bench(tmp_path, keep_versions=2))
    for _ in range(5):
        await rounds.close()
    await rounds.sweep()
    assert await rounds.versions_left() == {4, 5}
    assert await rounds.bases_left() == {3, 4}
    assert await rounds.bench.run.mailbox.newest_boundary(0) == 3
    assert await rounds.bench.run.version(0, 1) is not None


async def test_nothing_goes_while_everything_may_be_needed(tmp_path: Path) -> None:
    rounds = Rounds(await make_bench(tmp_path, keep_versions=3))
    for _ in range(2):
        await rounds.close()
        await rounds.sweep()
    assert await rounds.versions_left() == {0, 1, 2}
    assert await rounds.bench.run.mailbox.newest_boundary(0) == -1


async def test_a_payload_that_an_empty_round_still_names_stays(tmp_path: Path) -> None:
    rounds = Rounds(await make_bench(tmp_path, keep_versions=1))
    await rounds.close()
    for _ in range(4):
        await rounds.close(empty=True)
        await rounds.sweep()
    assert await rounds.versions_left() == {1}
    newest = await rounds.bench.run.newest(0)
    assert await rounds.bench.store.read(newest.params.key) is not None
    await rounds.close()
    await rounds.close()
    await rounds.sweep()
    assert await rounds.versions_left() == {7}


async def test_a_commit_that_was_damaged_on_its_way_lets_nothing_go(tmp_path: Path) -> None:
    """A flipped bit in a key is a commit all the same, of a payload that is not there."""

    class Damaging(FaultyStore):
        async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
            data = await super().read(key, start, end)
            if data is not None and key == keys.commit(0, 1):
                return data.replace(needed.encode(), damaged.encode())
            return data

    bench = await make_bench(tmp_path, keep_versions=2)
    rounds = Rounds(bench)
    needed = bench.run.origin(0).params.key.partition(".")[0][-32:]
    damaged = ("0" if needed[0] != "0" else "1") + needed[1:]
    await rounds.close(empty=True)
    await rounds.close()
    rounds.sweeper = Sweeper(bench.desk(store=Damaging(bench.store, healthy)), rounds.fleet, 0)
    with pytest.raises(StoreUnavailableError, match="did not come as it was committed"):
        await rounds.sweep()
    assert await bench.store.read(bench.run.origin(0).params.key) is not None


async def test_a_live_readers_version_stays_but_not_for_ever(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, keep_versions=1, presence_s=PRESENCE_S)
    rounds = Rounds(bench)
    await bench.show("bob", versions=(1,))
    for _ in range(4):
        await rounds.close()
        await rounds.sweep()
    assert await rounds.versions_left() == {1, 2, 3, 4}
    for count in range(100):
        await bench.show("bob", versions=(1,), count=count)
        await rounds.sweep()
        await bench.clock.advance(PRESENCE_S / 8)
    await rounds.sweep()
    assert await rounds.versions_left() == {4}


async def test_what_a_stopped_sweep_left_is_found_by_the_next(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, keep_versions=1)
    faulty = FaultyStore(bench.store, always("delete", Fault.NOT_APPLIED))
    rounds = Rounds(bench)
    rounds.sweeper = Sweeper(bench.desk(store=faulty), rounds.fleet, 0)
    for _ in range(3):
        await rounds.close()
    with pytest.raises(StoreUnavailableError):
        await rounds.sweep()
    assert await bench.run.mailbox.newest_boundary(0) == 2
    rounds.sweeper = Sweeper(bench.desk(), rounds.fleet, 0)
    await rounds.close()
    await rounds.sweep()
    assert await rounds.versions_left() == {4}


async def test_nothing_is_deleted_that_was_not_announced(tmp_path: Path) -> None:
    class Unannounced(FaultyStore):
        async def create(self, key: str, data: bytes) -> Created:
            raise StoreFullError("no room by plan")

    bench = await make_bench(tmp_path, keep_versions=1)
    rounds = Rounds(bench)
    for _ in range(3):
        await rounds.close()
    rounds.sweeper = Sweeper(bench.desk(store=Unannounced(bench.store, healthy)), rounds.fleet, 0)
    with pytest.raises(StoreFullError):
        await rounds.sweep()
    assert await rounds.versions_left() == {0, 1, 2, 3}


async def test_foreign_objects_are_let_lie(tmp_path: Path) -> None:
    rounds = Rounds(await make_bench(tmp_path, keep_versions=1))
    foreign = ["fragments/0000/0000000001/notes.txt", "mail/0000/0000000000/ann/notes.txt"]
    for key in foreign:
        await rounds.bench.store.put(key, [b"x"])
    for _ in range(4):
        await rounds.close()
    await rounds.sweep()
    assert [await rounds.bench.store.read(key) for key in foreign] == [b"x", b"x"]


async def test_records_are_never_deleted(tmp_path: Path) -> None:
    rounds = Rounds(await make_bench(tmp_path, keep_versions=1))
    for _ in range(6):
        await rounds.close()
        await rounds.sweep()
    mailbox = Mailbox(rounds.bench.store)
    assert isinstance(rounds.bench.store, MemoryStore)
    assert [(await mailbox.commit(0, number)) is not None for number in range(1, 7)] == [True] * 6
    assert (await mailbox.manifest())[0] == rounds.bench.run.manifest
