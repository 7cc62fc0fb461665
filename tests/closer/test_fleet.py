"""Who is live, as the closer sees it on its own clock."""

import json
from pathlib import Path

import pytest

from gradientmail.closer.fleet import Fleet
from gradientmail.mailbox import Mailbox
from gradientmail.records import keys
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.closer.bench import Bench, make_bench

PRESENCE_S = 60.0


async def fleet_of(scratch: Path) -> tuple[Bench, Fleet]:
    bench = await make_bench(scratch)
    fleet = Fleet(bench.run.mailbox, bench.clock, run=bench.run.name, presence_s=PRESENCE_S)
    return bench, fleet


async def pass_time(bench: Bench, fleet: Fleet, seconds: float) -> None:
    for _ in range(round(seconds / fleet.look_every_s)):
        await bench.clock.advance(fleet.look_every_s)
        await fleet.look()


async def test_a_learner_is_live_from_first_sight_until_it_is_silent(tmp_path: Path) -> None:
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann")
    await fleet.look()
    assert fleet.live() == {"ann"}
    await pass_time(bench, fleet, PRESENCE_S)
    assert fleet.live() == {"ann"}
    await pass_time(bench, fleet, fleet.look_every_s)
    assert fleet.live() == frozenset()
    await bench.show("ann", count=2)
    await fleet.look()
    assert fleet.live() == {"ann"}


async def test_a_learner_that_says_that_it_left_is_gone_at_once(tmp_path: Path) -> None:
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann")
    await fleet.look()
    await bench.show("ann", count=2, left=True)
    await fleet.look()
    assert fleet.live() == frozenset()
    await bench.show("ann", incarnation="2" * 32)
    await fleet.look()
    assert fleet.live() == {"ann"}


async def test_the_versions_of_live_learners_are_pinned(tmp_path: Path) -> None:
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann", versions=(3,))
    await bench.show("bob", versions=(5,))
    await bench.show("cyd", versions=(1,), left=True)
    await fleet.look()
    assert fleet.pinned(0) == {3, 5}
    assert fleet.pinned(1) == set()


async def test_whoever_shows_at_a_glance_is_live_until_a_look_finds_who_left(
    tmp_path: Path,
) -> None:
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann")
    await bench.show("bob", left=True)
    await fleet.glance()
    assert fleet.live() == {"ann", "bob"}
    await fleet.look()
    assert fleet.live() == {"ann"}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\x00", b'{"kind":"presence/1"}'])
async def test_what_showed_at_a_glance_and_is_no_presence_is_no_learner(
    body: bytes, tmp_path: Path
) -> None:
    """A round waits for it until the next look, and not until it falls silent."""
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann")
    await bench.store.put("learners/eve.json", [body])
    await fleet.glance()
    await fleet.look()
    assert fleet.live() == {"ann"}
    await bench.store.put("learners/eve.json", [body + b" "])
    await fleet.glance()  # another term
    await fleet.look()
    assert fleet.live() == {"ann"}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\x00", b'{"kind":"presence/1"}'])
async def test_an_object_that_is_no_presence_is_no_learner(body: bytes, tmp_path: Path) -> None:
    """No round may wait for it."""
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann")
    await bench.store.put("learners/eve.json", [body])
    await bench.store.put("learners/notes.txt", [body])
    bench.store._objects["learners/"] = b""  # a console's folder marker
    await fleet.look()
    assert fleet.live() == {"ann"}


async def test_the_presence_of_another_run_or_name_is_no_learner_of_ours(tmp_path: Path) -> None:
    bench, fleet = await fleet_of(tmp_path)
    await bench.show("ann")
    text = await bench.store.read("learners/ann.json")
    assert text is not None
    await bench.store.put("learners/copy.json", [text])
    other = json.loads(text) | {"run": "run-other", "learner": "bob"}
    body = json.dumps(other, sort_keys=True, separators=(",", ":")).encode()
    await bench.store.put("learners/bob.json", [body])
    await fleet.look()
    assert fleet.live() == {"ann"}


async def unreadable(scratch: Path, fault: Fault) -> tuple[Bench, Fleet, FaultyStore]:
    bench = await make_bench(scratch)
    store = FaultyStore(bench.store, always("read", fault, keys.learner("eve")))
    fleet = Fleet(Mailbox(store), bench.clock, run=bench.run.name, presence_s=PRESENCE_S)
    await bench.show("ann")
    await bench.show("eve")
    await fleet.glance()
    await fleet.look()
    return bench, fleet, store


async def test_a_presence_that_nobody_may_read_hides_nobody_else(tmp_path: Path) -> None:
    bench, fleet, _ = await unreadable(tmp_path, Fault.DENY)
    assert fleet.live() == {"ann"}
    await pass_time(bench, fleet, PRESENCE_S + fleet.look_every_s)
    assert fleet.live() == frozenset()


async def test_a_learner_is_live_while_its_presence_cannot_be_fetched(tmp_path: Path) -> None:
    """A closer that takes over amid an outage waits for it, as the one before did."""
    bench, fleet, store = await unreadable(tmp_path, Fault.NOT_APPLIED)
    assert fleet.live() == {"ann", "eve"}
    assert fleet.tags()["eve"] == frozenset()
    store.plan = healthy
    await fleet.look()
    assert fleet.live() == {"ann", "eve"}
    assert fleet.pinned(0) == {0}
    await pass_time(bench, fleet, PRESENCE_S + fleet.look_every_s)
    assert fleet.live() == frozenset()


async def test_a_presence_that_can_never_be_fetched_falls_silent(tmp_path: Path) -> None:
    bench, fleet, _ = await unreadable(tmp_path, Fault.NOT_APPLIED)
    await pass_time(bench, fleet, PRESENCE_S + fleet.look_every_s)
    assert fleet.live() == frozenset()


async def test_whoever_goes_on_showing_is_live_though_it_cannot_be_fetched(tmp_path: Path) -> None:
    bench, fleet, _ = await unreadable(tmp_path, Fault.NOT_APPLIED)
    for count in range(2, 5):
        await pass_time(bench, fleet, PRESENCE_S / 2)
        await bench.show("eve", count=count)
    await fleet.look()
    assert fleet.live() == {"eve"}
