"""Records that are not what they should be: a clear error, or as if they were not there."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gradientmail.closer.fleet import Fleet
from gradientmail.closer.lease import Lease
from gradientmail.errors import RecordError, RunNotFoundError
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.records import canonical, keys
from gradientmail.records.control import Stop
from gradientmail.records.head import Head
from gradientmail.records.lease import Beat
from gradientmail.records.presence import Presence
from gradientmail.run import open_run
from gradientmail.store.base import check_key
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.damage import broken_records
from tests.closer.bench import Bench, make_bench
from tests.closer.test_sweeper import Rounds
from tests.operations.test_verifying import trained
from tests.records.golden import COMMIT, GOLDEN, MANIFEST, NONCE, PRESENCE

HEAD = Head(run="r1", term=1, closer="c", versions=(1,), calling=(2,))
BEAT = Beat(term=1, closer="c", count=7)
KINDS = [pytest.param(record, id=name) for name, (record, _) in GOLDEN.items()]

WILD_KEYS = ["", ".", "..", "a/../b", "/etc/passwd", "a//b", "a/", "a b", "a\n", "k" * 513, ".x"]


# -- bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", KINDS)
def test_no_broken_form_of_any_record_is_read(record: msgspec.Struct) -> None:
    for name, data in broken_records(canonical.encode(record)):
        with pytest.raises(RecordError) as raised:
            canonical.decode(type(record), name, data)
        assert len(raised.value.reason) <= 1000, name
        assert raised.value.reason.isprintable(), name


@pytest.mark.parametrize("key", WILD_KEYS)
def test_a_record_names_no_object_that_no_store_can_hold(key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        check_key(key)
    params = msgspec.structs.replace(COMMIT.params, key=key)
    with pytest.raises(RecordError):
        canonical.encode(msgspec.structs.replace(COMMIT, params=params))


# -- what everything depends on ----------------------------------------------------------------


async def test_a_broken_manifest_or_commit_is_an_error_that_names_it() -> None:
    store = MemoryStore()
    mailbox = Mailbox(store)
    key = keys.commit(COMMIT.fragment, COMMIT.version)
    for _, data in broken_records(canonical.encode(MANIFEST)):
        await store.put(keys.MANIFEST, [data])
        with pytest.raises(RecordError, match=r"key='manifest\.json'"):
            await open_run(store)
        await store.put(key, [data])
        with pytest.raises(RecordError, match=f"key='{key}'"):
            await mailbox.commit(COMMIT.fragment, COMMIT.version)
    await store.delete([keys.MANIFEST])
    with pytest.raises(RunNotFoundError):
        await open_run(store)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run": "run-other"}, "of run 'run-other'"),
        ({"fragment": 1}, "holds version 1 of fragment 1"),
        ({"version": 9}, "holds version 9 of fragment 0"),
    ],
)
async def test_a_commit_of_another_run_or_place_is_an_error(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    bench, (_, version) = await trained(tmp_path, rounds=1)
    record = msgspec.structs.replace(version.record, **changes)
    await bench.store.put(keys.commit(0, 1), [canonical.encode(record)])
    for look in (bench.run.version(0, 1), bench.run.newest(0), bench.run.newest_of_all()):
        with pytest.raises(RecordError, match=reason):
            await look


# -- hints --------------------------------------------------------------------------------------


async def test_a_broken_hint_is_no_hint() -> None:
    store = MemoryStore()
    mailbox = Mailbox(store)
    hints = [
        (HEAD, keys.HEAD, mailbox.head),
        (BEAT, keys.beat(1), lambda: mailbox.beat(1)),
        (PRESENCE, keys.learner("alice"), lambda: mailbox.presence("alice")),
    ]
    for record, key, look in hints:
        await store.put(key, [canonical.encode(record)])
        assert await look() == record
        for name, data in broken_records(canonical.encode(record)):
            await store.put(key, [data])
            assert await look() is None, name


@pytest.mark.parametrize(
    "versions", [(), (0,), (10**6,), (2**53 - 1,), (2,) * 9999], ids=lambda v: str(v)[:20]
)
async def test_a_head_that_lies_changes_nothing(tmp_path: Path, versions: tuple[int, ...]) -> None:
    bench, trained_to = await trained(tmp_path)
    head = Head(run="run-other", term=2**53 - 1, closer="eve", versions=versions, done=True)
    await bench.run.mailbox.put_head(head)
    assert await bench.run.newest_of_all() == [trained_to[-1]]


async def test_broken_presences_neither_stop_a_closer_nor_hold_a_version(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    for number, (_, data) in enumerate(broken_records(canonical.encode(PRESENCE))):
        await bench.store.put(keys.learner(f"eve-{number}"), [data])
    await bench.show("ann", versions=(3,))
    wild = Presence(run="run-other", learner="x", incarnation=NONCE, count=1, versions=())
    await bench.store.put(keys.learner("bob"), [canonical.encode(wild)])
    fleet = Fleet(bench.run.mailbox, bench.clock, run=bench.run.name, presence_s=60.0)
    await fleet.look()
    assert "ann" in fleet.live()
    assert fleet.pinned(0) == {3}


async def test_a_broken_term_or_beat_keeps_no_closer_from_the_lease(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    await bench.store.put(keys.term(1), [b"\x80\x04N."])
    await bench.store.put(keys.beat(1), [b"{" * 100_000])
    assert await bench.while_time_passes(lease_of(bench).acquire(NONCE)) == 2


def lease_of(bench: Bench) -> Lease:
    return Lease(
        bench.run.mailbox,
        bench.clock,
        get_logger("gradientmail.closer"),
        run=bench.run.name,
        name="c",
        lease_s=10.0,
    )


@pytest.mark.parametrize("body", [b"", b"\x80\x04N.", b"{" * 100_000])
async def test_a_boundary_nobody_announced_takes_no_version_that_is_kept(
    tmp_path: Path, body: bytes
) -> None:
    """Its key alone says how far a sweep went: one from beyond the head would delete the head."""
    rounds = Rounds(await make_bench(tmp_path, keep_versions=2))
    for number in (3, 10**9, 10**10 - 1):
        await rounds.bench.store.put(keys.boundary(0, number), [body])
    for _ in range(4):
        await rounds.close()
        await rounds.sweep()
    assert await rounds.versions_left() == {3, 4}


async def test_whatever_lies_under_stop_stops_the_run() -> None:
    """It can be neither withdrawn nor repeated, so it need not be a record."""
    store = MemoryStore()
    await store.put(keys.STOP, [b"<html>"])
    reason = await Mailbox(store).stop_reason()
    assert reason is not None
    assert "not a JSON record" in reason


async def test_a_stops_reason_has_no_escape_codes_for_a_terminal() -> None:
    store = MemoryStore()
    stop = Stop(run="r1", reason="all\n\x1b[2Jis well", nonce="1" * 32)
    await Mailbox(store).create_stop(stop)
    assert await Mailbox(store).stop_reason() == "all  [2Jis well"
