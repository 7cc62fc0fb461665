"""What the doctor gathers is what is there."""

import random
from collections.abc import Callable
from typing import Any

import msgspec

from gradientmail.clock import fresh_nonce
from gradientmail.doctor.facts import Bytes, RunFacts, gather_facts, observation_s
from gradientmail.operations.stopping import request_stop
from gradientmail.records import keys
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.control import Boundary
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import PayloadRef
from gradientmail.records.presence import Presence
from gradientmail.run import Run, open_run
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.clock import ManualClock
from tests.operations.models import create, small_model

DIGEST = "xxh3_128:" + "0" * 32


class Between(ManualClock):
    """A clock whose only sleep is the time between the two looks."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__(1000.0, wall_offset_s=0.0)
        self._happens = happens

    async def sleep(self, seconds: float) -> None:
        self._now_s += seconds
        await self._happens()


async def nothing() -> None:
    """Leave the run alone."""


class Scene:
    """A run in memory, and ways to change it."""

    def __init__(self, run: Run) -> None:
        self.run, self.rng = run, random.Random(0)

    @classmethod
    async def of(cls, **settings: Any) -> "Scene":
        store = MemoryStore()
        await create(store, small_model(), **settings)
        return cls(await open_run(store))

    async def facts(self, happens: Callable[[], Any] = nothing) -> RunFacts:
        return await gather_facts(self.run, Between(happens), lambda _: None)

    async def payload(self, version: int, role: str = "params", size: int = 100) -> PayloadRef:
        key = keys.payload(0, version, fresh_nonce(self.rng), role)
        await self.run.mailbox.store.put(key, [bytes(size)])
        return PayloadRef(key=key, size_bytes=size, digest=DIGEST)

    async def commit(self, params: PayloadRef | None = None, **fields: Any) -> None:
        newest = await self.run.newest(0)
        record = RoundRecord(
            run=self.run.name,
            fragment=0,
            version=newest.number + 1,
            parent=newest.digest,
            params=params or await self.payload(newest.number + 1),
            closer="c",
            term=1,
            nonce=fresh_nonce(self.rng),
            **fields,
        )
        await self.run.mailbox.create_commit(record)

    async def presence(self, name: str, count: int, **fields: Any) -> None:
        said = Presence(
            run=self.run.name,
            learner=name,
            incarnation="0" * 32,
            count=count,
            **{"versions": (0,), **fields},
        )
        await self.run.mailbox.put_presence(said)

    async def post(self, learner: str, version: int) -> None:
        await self.run.mailbox.store.put(keys.gossip(0, version, learner), [b"parameters"])

    async def letter(self, base: int, learner: str, size: int = 10) -> str:
        key = keys.mail(0, base, learner, fresh_nonce(self.rng))
        await self.run.mailbox.store.put(key, [bytes(size)])
        return key


async def test_who_lives_is_seen_by_what_changes() -> None:
    scene = await Scene.of()
    for name in ("ann", "bob"):
        await scene.presence(name, 1, seen_at=900.0)
    await scene.presence("cat", 1, left=True)

    async def meanwhile() -> None:
        await scene.presence("ann", 2, seen_at=2000.0)
        await scene.presence("dan", 1)

    facts = await scene.facts(meanwhile)
    assert facts.live == {"ann", "dan"}
    now_s = 1000.0 + observation_s(facts.settings)
    assert {one.name: one.ahead_s for one in facts.learners}["ann"] == 2000.0 - now_s
    assert [one.name for one in facts.learners if one.left] == ["cat"]


async def test_a_presence_of_another_run_is_nobody() -> None:
    scene = await Scene.of()
    await scene.presence("ann", 1)
    entries = await scene.run.mailbox.presence("ann")
    assert entries is not None
    other = msgspec.structs.replace(entries, run="another")
    await scene.run.mailbox.put_presence(other)
    assert (await scene.facts()).learners == ()


async def test_a_closer_is_seen_by_its_beat() -> None:
    scene = await Scene.of()
    assert (await scene.facts()).closer is None
    term = Term(run=scene.run.name, term=1, closer="c", nonce="0" * 32)
    await scene.run.mailbox.create_term(term)
    await scene.run.mailbox.put_beat(Beat(term=1, closer="c", count=1))

    async def beat() -> None:
        await scene.run.mailbox.put_beat(Beat(term=1, closer="c", count=2))

    still, alive = (await scene.facts()).closer, (await scene.facts(beat)).closer
    assert still is not None
    assert alive is not None
    assert (still.name, still.changed, alive.changed) == ("c", False, True)


async def test_a_fragment_tells_its_age_and_who_was_heard() -> None:
    scene = await Scene.of(max_staleness=1)
    await scene.commit(closed_at=940.0, rejected=(Rejection(key="mail/x", reason="bad"),))
    await scene.letter(1, "ann")
    await scene.letter(0, "bob")
    (fragment, *_) = (await scene.facts()).fragments
    assert (fragment.version, fragment.moved, fragment.boundary) == (1, False, -1)
    assert fragment.open_s == 60.0 + observation_s(scene.run.manifest.settings)
    assert fragment.heard == {"ann", "bob"}
    assert [one.reason for one in fragment.rejected] == ["bad"]
    (moved, *_) = (await scene.facts(scene.commit)).fragments
    assert moved.moved


async def test_what_a_version_has_used_is_heard_no_more() -> None:
    scene = await Scene.of(max_staleness=1)
    key = await scene.letter(0, "ann")
    used = Participant(
        learner="ann",
        incarnation="0" * 32,
        nonce="0" * 32,
        base=0,
        steps=1,
        tokens=1,
        weight=1.0,
        norm=1.0,
        clip=1.0,
        key=key,
        digest=DIGEST,
    )
    await scene.commit(participants=(used,), applied={"ann": 0})
    assert (await scene.facts()).fragments[0].heard == frozenset()


async def test_a_payload_that_is_missing_is_found_also_when_empty_rounds_name_it() -> None:
    scene = await Scene.of()
    first = await scene.payload(1)
    await scene.commit(first)
    await scene.commit(first, empty=True)
    assert (await scene.facts()).fragments[0].missing == ()
    await scene.run.mailbox.store.delete([first.key])
    assert (await scene.facts()).fragments[0].missing == ((2, first.key),)


async def test_what_was_swept_is_not_missing() -> None:
    scene = await Scene.of()
    payloads = [await scene.payload(version) for version in (1, 2, 3)]
    for params in payloads:
        await scene.commit(params)
    boundary = Boundary(run=scene.run.name, fragment=0, version=2, nonce="0" * 32)
    await scene.run.mailbox.create_boundary(boundary)
    await scene.run.mailbox.store.delete([payloads[0].key, scene.run.origin(0).params.key])
    facts = await scene.facts()
    assert facts.fragments[0].missing == ()
    assert facts.sweepable == Bytes(1, 100), "version 2 is at the boundary and still there"


async def test_bytes_are_sorted_by_who_needs_them() -> None:
    scene = await Scene.of()
    before = (await scene.facts()).used
    await scene.commit(await scene.payload(1, size=1000))
    await scene.payload(1, size=30)
    await scene.letter(1, "ann", size=5)
    await scene.run.mailbox.store.put("notes.txt", [b"mine"])
    facts = await scene.facts()
    assert facts.used == Bytes(before.objects + 2, before.size_bytes + 1005)
    assert facts.unused == Bytes(1, 30)
    assert facts.foreign == Bytes(1, 4)
    assert facts.sweepable == Bytes()


async def test_posts_to_neighbours_tell_how_far_each_is_and_are_the_runs_own() -> None:
    scene = await Scene.of(exchange="gossip")
    await scene.presence("ann", 1)
    await scene.presence("bob", 1)
    await scene.post("ann", 1)
    await scene.post("ann", 2)
    await scene.post("bob", 1)
    facts = await scene.facts()
    (fragment, *_) = facts.fragments
    assert (fragment.version, fragment.moved) == (2, False)
    assert fragment.posts == {"ann": 2, "bob": 1}
    assert facts.foreign == Bytes()
    moved = (await scene.facts(lambda: scene.post("bob", 2))).fragments[0]
    assert (moved.version, moved.moved) == (2, True)


async def test_a_stray_name_among_posts_is_no_post() -> None:
    scene = await Scene.of(exchange="gossip", stop_after_rounds=100)
    await scene.presence("ann", 1)
    await scene.post("ann", 2)
    used = (await scene.facts()).used
    await scene.post("eve", 2)
    await scene.post("ann", 9_999_999_999)
    facts = await scene.facts()
    assert (facts.fragments[0].version, facts.fragments[0].posts) == (2, {"ann": 2})
    assert (facts.used, facts.foreign.objects) == (used, 2)


async def test_a_stray_post_in_a_run_with_a_closer_is_foreign() -> None:
    scene = await Scene.of()
    await scene.presence("ann", 1)
    await scene.post("ann", 50)
    facts = await scene.facts()
    assert (facts.fragments[0].version, facts.fragments[0].posts) == (0, {})
    assert facts.foreign.objects == 1


async def test_learners_without_a_closer_say_when_their_last_round_was() -> None:
    scene = await Scene.of(exchange="gossip", stop_after_rounds=1)
    await scene.presence("ann", 1, step_s=0.25)
    facts = await scene.facts()
    assert facts.end is None
    assert [one.step_s for one in facts.learners] == [0.25]
    await scene.presence("ann", 2, versions=(1,))
    assert (await scene.facts()).end == "its last round, of 1, is closed"


async def test_those_who_exchange_with_nobody_are_not_watched() -> None:
    assert (await (await Scene.of(exchange="nobody")).facts()).observed_s == 0.0


async def test_a_retained_run_sweeps_nothing() -> None:
    scene = await Scene.of(retain=True)
    await scene.commit()
    boundary = Boundary(run=scene.run.name, fragment=0, version=0, nonce="0" * 32)
    await scene.run.mailbox.create_boundary(boundary)
    facts = await scene.facts()
    assert facts.sweepable == Bytes()
    assert facts.unused.objects == 1


async def test_a_run_has_ended_after_its_last_round_or_when_asked_to() -> None:
    scene = await Scene.of(stop_after_rounds=1)
    assert (await scene.facts()).end is None
    await scene.commit()
    assert (await scene.facts()).end == "its last round, of 1, is closed"
    other = await Scene.of()
    await request_stop(other.run.mailbox.store, "enough", rng=other.rng)
    assert (await other.facts()).end == "someone asked it to stop: enough"


async def test_a_run_that_has_ended_is_not_watched() -> None:
    scene = await Scene.of(stop_after_rounds=1)
    assert (await scene.facts()).observed_s > 0.0
    await scene.commit()
    assert (await scene.facts()).observed_s == 0.0
