"""A learner's rounds without a closer: whom it mixes with, and how far it follows others."""

import asyncio
import random
from types import TracebackType
from typing import Any, Self

import pytest
import torch
from torch import nn

from gradientmail.learner.desk import Desk
from gradientmail.learner.gossip import Gossip
from gradientmail.learner.neighbours import Neighbours, Posting, own_version
from gradientmail.learner.posts import Arrival, Draft, Trained
from gradientmail.learner.saving import Saved, loaded, restore_training
from gradientmail.learner.state import State
from gradientmail.learner.training import Training
from gradientmail.logs import get_logger
from gradientmail.records import keys
from gradientmail.run import open_run
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.testing.clock import ManualClock
from tests.closer.bench import inline
from tests.operations.models import create

KEEP = 2
"""Rounds of which each learner keeps what it posted."""
LAST = 100
"""The round after which a run ends that ends by itself."""
APART = {"topology": "graph", "topology_settings": {"pairs": [["ann", "bob"]]}}
"""Everybody but ann and bob is by itself."""
CPU = torch.device("cpu")


class Mixer:
    """A learner of one number: its training side is in the test's hand."""

    def __init__(self, team: "Team", name: str) -> None:
        self._team, self.name, self.meter = team, name, Meter()
        self.model = nn.Linear(1, 1, bias=False)

    async def join(self, state: State | None = None) -> Self:
        run = await open_run(MeteredStore(self._team.store, self.meter))
        self.desk = Desk(
            run=run,
            name=self.name,
            incarnation="1" * 32,
            device=CPU,
            clock=self._team.clock,
            rng=random.Random(self.name),
            offload=inline,
            meter=self.meter,
            log=get_logger("gradientmail.learner", learner=self.name),
        )
        self.gossip = Gossip(self.desk, news=lambda: None)
        self.training = Training(self.desk, self.model, self.gossip, discarded=lambda: None)
        self._saved = Saved(model=self.model, optimizer=None, position=None, device=CPU)
        await (self._begin() if state is None else self._restore(state))
        self.running = asyncio.create_task(self.gossip.run())
        return self

    async def _begin(self) -> None:
        await self.gossip.join({})
        self.training.start(self.gossip.take()[0])

    async def _restore(self, state: State) -> None:
        tree = loaded(state, self.desk.run, self.name)
        (saved,) = tree["training"]["fragments"]
        version = own_version(self.desk.run, 0, saved["version"])
        await self.gossip.join({0: Arrival(version=version, params=saved["committed"])})
        self._saved.restore(tree)
        restore_training(self.training, tree, [version], CPU)
        self.gossip.outbox.restore(tree["outbox"])
        if self.training.fragments[0].posted:
            self.training.post_again(0)
        self.training.settle()

    def state(self) -> State:
        outbox = self.gossip.outbox.state()
        assert outbox is not None
        return self._saved.save(self.desk.run, self.name, self.training, outbox)

    def post(self, move: float) -> None:
        """Train one step, which is a round."""
        with torch.no_grad():
            self.model.weight.add_(move)
        self.training.stepped(1, None, samples=1)
        self.training.settle()

    async def round(self, move: float = 1.0) -> None:
        """Post, and take what the round makes of it."""
        self.post(move)
        await self._team.pass_time()
        self.training.settle()

    @property
    def version(self) -> int:
        return self.training.fragments[0].version.number

    @property
    def value(self) -> float:
        return float(self.model.weight.detach())


class Team:
    """Learners of one run over a store in memory, on one clock that the test moves."""

    def __init__(self, **settings: Any) -> None:
        self.store, self.clock = MemoryStore(), ManualClock(100.0)
        self._settings = {
            "exchange": "gossip",
            "topology": "full",
            "alignment": "carry",
            "sync_every": 1,
            "keep_versions": KEEP,
            "poll_s": 1.0,
            "presence_s": 1e6,
            "quorum": 2,
            **settings,
        }
        self._members: list[Mixer] = []

    async def __aenter__(self) -> Self:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        await create(self.store, model, **self._settings)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in self._members.copy():
            await self.kill(member)

    async def learner(self, name: str, state: State | None = None) -> Mixer:
        member = await Mixer(self, name).join(state)
        self._members.append(member)
        return member

    async def kill(self, member: Mixer) -> None:
        self._members.remove(member)
        member.running.cancel()
        await asyncio.gather(member.running, return_exceptions=True)

    async def pass_time(self) -> None:
        await self.clock.advance(2.0)
        for member in self._members:
            if member.running.done():
                member.running.result()

    async def round(self, *moves: float) -> None:
        """Let every learner train and post, and then mix."""
        for member, move in zip(self._members, moves, strict=True):
            member.post(move)
        await self.pass_time()
        for member in self._members:
            member.training.settle()


async def well_formed(member: Mixer, name: str, version: int, value: float) -> None:
    """Post ``value`` as a learner ``name`` of the same run that says it is in that round."""
    desk = member.desk
    origin = desk.run.origin(0)
    vector = torch.zeros(desk.run.layouts[0].numel)
    vector[0] = value
    draft = Draft(
        key="",
        nonce="2" * 32,
        base=origin,
        delta=vector,
        trained=Trained(1, 1),
        step_s=1.0,
        final=False,
    )
    posting = Posting(fragment=0, version=version, fast=vector, slow=vector, draft=draft)
    eve = Desk(
        run=desk.run,
        name=name,
        incarnation="3" * 32,
        device=CPU,
        clock=desk.clock,
        rng=desk.rng,
        offload=inline,
        meter=Meter(),
        log=desk.log,
    )
    await Neighbours(eve).post(posting)


# -- how far a learner follows -------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, LAST, 9_999_999_999])
@pytest.mark.parametrize("data", [b"", b"\x08" + bytes(7) + b"{}      "])
async def test_nobody_follows_an_object_that_is_no_post(version: int, data: bytes) -> None:
    async with Team(stop_after_rounds=LAST) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        await team.store.put(keys.gossip(0, version, "eve"), [data])
        await team.round(2.0, 4.0)
        await team.round(1.0, 1.0)
        assert (ann.version, ann.value, ann.gossip.ending) == (2, 4.0, False)
        assert (bob.version, bob.value, bob.gossip.ending) == (2, 4.0, False)


@pytest.mark.parametrize("version", [LAST + 1, 9_999_999_999])
async def test_nobody_follows_beyond_the_end_of_the_run(version: int) -> None:
    async with Team(stop_after_rounds=LAST) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        await well_formed(ann, "eve", version, 7.0)
        await team.round(2.0, 4.0)
        cyd = await team.learner("cyd")
        assert [one.version for one in (ann, bob, cyd)] == [1, 1, 0]
        assert not any(one.gossip.ending for one in (ann, bob, cyd))


async def test_one_that_others_left_far_behind_goes_on_where_they_are() -> None:
    async with Team(stop_after_rounds=LAST, grace_s=0.0) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        await team.store.put(keys.gossip(0, LAST - 1, "eve"), [b""])
        await team.round(1.0, 1.0)
        for _ in range(10 * KEEP):
            await bob.round()
        await ann.round()
        assert ann.version == bob.version - 1
        await ann.round()
        assert ann.version == bob.version
        assert ann.value == (3.0 + bob.value) / 2


async def test_nobody_follows_one_that_is_no_neighbour_while_there_are_neighbours() -> None:
    async with Team(**APART) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        cyd = await team.learner("cyd")
        for _ in range(2 * KEEP):
            await cyd.round()
        await team.round(2.0, 4.0, 0.0)
        assert (ann.version, ann.value) == (bob.version, bob.value) == (1, 3.0)


async def test_one_left_far_behind_goes_on_where_neighbours_are_however_far_others_are() -> None:
    async with Team(grace_s=0.0, **APART) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        cyd = await team.learner("cyd")
        for _ in range(30):
            await cyd.round()
        for _ in range(KEEP + 2):
            await bob.round()
        await ann.round()
        assert ann.version == bob.version - 1
        await bob.round()
        assert bob.version == KEEP + 3


async def test_no_object_under_a_neighbours_name_leads_to_one_that_is_no_neighbour() -> None:
    async with Team(**APART) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        cyd = await team.learner("cyd")
        for _ in range(2 * KEEP):
            await cyd.round()
        await team.store.put(keys.gossip(0, 2 * KEEP, "bob"), [b""])
        await team.round(2.0, 4.0, 0.0)
        assert ann.version == bob.version == 1


async def test_of_an_endless_post_no_more_is_read_than_a_post_can_be() -> None:
    async with Team(quorum=1) as team:
        ann = await team.learner("ann")
        await team.store.put(keys.gossip(0, 1, "eve"), [bytes(1 << 24)])
        before = ann.meter.down_bytes
        ann.post(1.0)
        await team.pass_time()
        assert ann.meter.down_bytes - before < 1 << 20


# -- after a restart -----------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, KEEP])
@pytest.mark.parametrize("behind", range(KEEP + 3))
async def test_one_restored_from_an_old_state_mixes_again(behind: int, keep: int) -> None:
    async with Team(grace_s=0.0, keep_versions=keep) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        await team.round(1.0, 1.0)
        state = ann.state()
        await team.kill(ann)
        for _ in range(behind):
            await bob.round()
        ann = await team.learner("ann", state)
        for _ in range(KEEP + 2):  # bob closes each round, and sweeps, before ann is in it
            await bob.round()
            await ann.round()
        before = ann.value
        await bob.round(10.0)
        await ann.round(0.0)
        assert ann.version in (bob.version, bob.version - 1)
        assert ann.value != before


async def test_one_restored_goes_through_kept_rounds_again() -> None:
    async with Team(grace_s=0.0) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        await team.round(1.0, 1.0)
        state = ann.state()
        await team.kill(ann)
        posted = []
        for _ in range(KEEP):
            await bob.round()
            posted.append(bob.value)
        ann = await team.learner("ann", state)
        for version, value in enumerate(posted, start=2):
            before = ann.value
            await ann.round()
            assert (ann.version, ann.value) == (version, (before + 1.0 + value) / 2)


async def test_one_restored_goes_on_where_neighbours_are_however_far_others_are() -> None:
    async with Team(**APART) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        cyd = await team.learner("cyd")
        await team.round(2.0, 4.0, 0.0)
        for _ in range(30):
            await cyd.round()
        state = ann.state()
        await team.kill(ann)
        ann = await team.learner("ann", state)
        assert (ann.version, ann.value) == (bob.version, bob.value) == (1, 3.0)


async def test_one_restored_in_a_round_that_others_have_swept_goes_on_where_they_are() -> None:
    async with Team(grace_s=0.0) as team:
        ann, bob = await team.learner("ann"), await team.learner("bob")
        await team.round(1.0, 1.0)
        ann.post(1.0)
        await team.pass_time()
        state = ann.state()
        await team.kill(ann)
        for _ in range(KEEP + 1):
            await bob.round()
        ann = await team.learner("ann", state)
        assert ann.version == bob.version
        await bob.round()
        await ann.round()
        assert ann.version == bob.version


async def test_what_is_posted_again_has_the_same_bits() -> None:
    async with Team() as team:
        ann = await team.learner("ann")
        ann.post(0.1)
        await team.pass_time()
        key = keys.gossip(0, 1, "ann")
        state, posted = ann.state(), await team.store.read(key)
        await team.kill(ann)
        await team.store.delete([key])
        ann = await team.learner("ann", state)
        await team.pass_time()
        again = await team.store.read(key)
        assert posted is not None
        assert again is not None
        size = ann.desk.run.algorithm.gossip_format(ann.desk.run.layouts[0].numel).data_bytes
        assert again[-size:] == posted[-size:]
