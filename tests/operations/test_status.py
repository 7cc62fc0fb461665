"""One glance tells what is committed, who is there and what is missing."""

import random
from collections.abc import Sequence

import msgspec
import pytest
from torch import nn

from gradientmail.errors import RunNotFoundError
from gradientmail.mailbox import Mailbox
from gradientmail.operations.status import RunStatus, run_status
from gradientmail.operations.stopping import request_stop
from gradientmail.records import keys
from gradientmail.records.commit import Rejection, RoundRecord
from gradientmail.records.head import Head
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import Manifest
from gradientmail.records.presence import Presence
from gradientmail.run import open_run
from gradientmail.store.memory import MemoryStore
from tests.operations.models import create, small_model

NONCE = "0" * 32
NOW_S = 1000.0


class Wall:
    """A clock of which only the wall is asked."""

    def now(self) -> float:
        raise NotImplementedError

    def wall(self) -> float:
        return NOW_S

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


async def look(store: MemoryStore) -> RunStatus:
    return await run_status(store, clock=Wall())


async def commit(store: MemoryStore, fragment: int, rejected: Sequence[Rejection] = ()) -> None:
    run = await open_run(store)
    newest = await run.newest(fragment)
    record = RoundRecord(
        run=run.name,
        fragment=fragment,
        version=newest.number + 1,
        parent=newest.digest,
        params=newest.params,
        empty=True,
        rejected=tuple(rejected),
        closer="c",
        term=1,
        nonce=NONCE,
    )
    await run.mailbox.create_commit(record)


async def show(store: MemoryStore, manifest: Manifest, learner: str, **fields: object) -> None:
    presence = Presence(
        run=manifest.run, learner=learner, incarnation=NONCE, count=1, versions=(0,)
    )
    presence = msgspec.structs.replace(presence, **fields)
    await Mailbox(store).put_presence(presence)


async def hold_lease(store: MemoryStore, manifest: Manifest, *, released: bool) -> None:
    mailbox = Mailbox(store)
    await mailbox.create_term(Term(run=manifest.run, term=1, closer="c", nonce=NONCE))
    await mailbox.put_beat(Beat(term=1, closer="c", count=5, released=released))


async def test_a_fresh_run_says_what_to_start() -> None:
    store = MemoryStore()
    manifest = await create(store, small_model(), fragments=2)

    status = await look(store)

    assert (status.run, status.state, status.rounds) == (manifest.run, "running", 0)
    assert status.closer is None
    assert sum(fragment.elements for fragment in status.fragments) == 2110
    assert [notice.split(":")[0] for notice in status.notices] == [
        "no closer holds the lease",
        "no learner is live",
    ]


async def test_commits_are_found_without_the_head_and_in_spite_of_a_wrong_one() -> None:
    store = MemoryStore()
    manifest = await create(store, small_model(), fragments=2)
    for _ in range(3):
        await commit(store, 0)
    await commit(store, 1, [Rejection(key="mail/0001/x", reason="foreign")])
    before = await look(store)
    await Mailbox(store).put_head(
        Head(run=manifest.run, term=1, closer="c", versions=(9, 1, 7), done=False)
    )

    after = await look(store)

    assert [one.version for one in after.fragments] == [3, 1]
    assert before.fragments == after.fragments
    assert after.rounds == 4
    assert after.fragments[1].commit.rejected[0].reason == "foreign"


async def test_learners_are_live_silent_or_left() -> None:
    store = MemoryStore()
    manifest = await create(store, nn.Linear(3, 3), presence_s=60.0, quorum=2)
    await hold_lease(store, manifest, released=False)
    await show(store, manifest, "alice", seen_at=NOW_S - 10)
    await show(store, manifest, "bob", seen_at=NOW_S - 61)
    await show(store, manifest, "carol", seen_at=NOW_S - 10, left=True)
    await show(store, manifest, "of-another-run", run="other")
    await store.put(keys.learner("broken"), [b"{"])
    await store.put("learners/notes.txt", [b""])

    status = await look(store)

    assert [(one.name, one.state) for one in status.learners] == [
        ("alice", "live"),
        ("bob", "silent"),
        ("carol", "left"),
    ]
    assert status.learners[0].age_s == 10
    assert status.notices == (
        "quorum = 2, but 1 learners are live: every round waits for its timeout before it closes "
        "with what there is",
    )


@pytest.mark.parametrize("released", [False, True])
async def test_a_lease_that_was_given_back_is_nobodys(*, released: bool) -> None:
    store = MemoryStore()
    await hold_lease(store, await create(store, nn.Linear(3, 3)), released=released)

    status = await look(store)

    assert (status.closer.name, status.closer.term, status.closer.beats) == ("c", 1, 5)
    assert any("no closer holds" in notice for notice in status.notices) is released


async def test_without_a_closer_learners_say_how_far_they_are_and_none_is_missed() -> None:
    store = MemoryStore()
    manifest = await create(store, nn.Linear(3, 3), exchange="gossip", quorum=3)
    await show(store, manifest, "alice", seen_at=NOW_S, versions=(5,), divergence=0.125)
    await show(store, manifest, "bob", seen_at=NOW_S, versions=(6,))
    await show(store, manifest, "carol", seen_at=NOW_S, versions=())

    status = await look(store)

    assert (status.fragments[0].version, status.rounds, status.notices) == (6, 6, ())
    assert [one.presence.divergence for one in status.learners] == [0.125, None, None]


async def test_a_mixing_that_waits_for_learners_to_show_is_said() -> None:
    store = MemoryStore()
    manifest = await create(store, nn.Linear(3, 3), exchange="gossip", quorum=3)
    await show(store, manifest, "alice", seen_at=NOW_S)

    (notice,) = (await look(store)).notices

    assert "quorum = 3, but 1 learners have shown" in notice


async def test_learners_that_exchange_nothing_are_not_missed() -> None:
    store = MemoryStore()
    await create(store, nn.Linear(3, 3), exchange="nobody")
    (notice,) = (await look(store)).notices
    assert "cannot be seen" in notice


async def test_a_stop_can_be_asked_for_once_and_is_seen() -> None:
    store = MemoryStore()
    await create(store, nn.Linear(3, 3))

    assert await request_stop(store, "enough", rng=random.Random(0))
    assert not await request_stop(store, "again", rng=random.Random(1))

    status = await look(store)
    assert (status.state, status.stop_reason) == ("stopping", "enough")


async def test_a_run_that_closed_its_last_round_is_done_and_wants_nothing() -> None:
    store = MemoryStore()
    await create(store, nn.Linear(3, 3), stop_after_rounds=1)
    await commit(store, 0)

    status = await look(store)

    assert (status.state, status.notices) == ("done", ())


async def test_it_is_json_and_back() -> None:
    store = MemoryStore()
    manifest = await create(store, small_model(), fragments=2)
    await hold_lease(store, manifest, released=False)
    await show(store, manifest, "alice", seen_at=NOW_S)
    await commit(store, 1)
    status = await look(store)

    assert msgspec.json.decode(msgspec.json.encode(status), type=RunStatus) == status


async def test_no_run_is_said_so() -> None:
    with pytest.raises(RunNotFoundError):
        await look(MemoryStore())
    with pytest.raises(RunNotFoundError):
        await request_stop(MemoryStore(), "", rng=random.Random(0))
