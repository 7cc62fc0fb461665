"""What runs in a simulated process: the real closer, and the real parts of a learner.

``learner.session`` puts a learner's parts together around the user's own thread; here they stand
around a coroutine that takes the steps.
"""

import asyncio
import random
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch

from gradientmail.clock import fresh_nonce
from gradientmail.closer.daemon import Service
from gradientmail.closer.spool import Spool
from gradientmail.learner.desk import Desk
from gradientmail.learner.exchange import Exchange
from gradientmail.learner.posts import Arrival
from gradientmail.learner.saving import Saved, loaded, restore_training
from gradientmail.learner.state import State
from gradientmail.learner.training import Training
from gradientmail.logs import get_logger
from gradientmail.protocol.publishing import Hold
from gradientmail.run import Run, Version, open_run
from gradientmail.simulation.process import Process
from gradientmail.simulation.scenario import Member
from gradientmail.simulation.tiny import tiny_trainee
from gradientmail.simulation.trainee import Trainee
from gradientmail.store.base import Store
from gradientmail.store.local import Offload
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.tasks import race

P = ParamSpec("P")
T = TypeVar("T")

SAVE_EVERY_S = 20.0


def inline(process: Process, longest_s: float) -> Offload:
    """Return an offload that takes up to ``longest_s`` and then computes at once."""

    async def offload(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        await process.clock.sleep(process.rng.uniform(0.0, longest_s))
        return function(*args, **kwargs)

    return offload


class SimulatedCloser:
    """Closes rounds until the run is done or its task is cancelled.

    Attributes:
        joined: It takes part; before that, a store out of reach ends it.
        steps: A closer takes none.
    """

    steps = 0

    def __init__(self, process: Process, member: Member, store: Store, spool: Path) -> None:
        self.joined = False
        self._process, self._member, self._store, self._spool = process, member, store, spool

    async def run(self) -> None:
        """Serve."""
        run = await open_run(self._store)
        self.joined = True
        service = Service(
            run,
            name=self._member.name,
            clock=self._process.clock,
            rng=self._process.rng,
            offload=inline(self._process, self._member.compute_s),
            spool=Spool(self._spool, self._store),
        )
        await service.run(until_done=True)


class SimulatedLearner:
    """Takes part until its run ends or it is told to leave.

    Args:
        trainee: What it trains, made anew in each life.

    Attributes:
        leaving: Set it to make it leave in good order.
        spoil: The next step ends in NaN.
        joined: It takes part; before that, a store out of reach ends it.
        steps: Inner steps taken.
    """

    def __init__(
        self,
        process: Process,
        member: Member,
        store: Store,
        disk: MutableMapping[str, State],
        trainee: Callable[[random.Random], Trainee] = tiny_trainee,
    ) -> None:
        self.leaving = asyncio.Event()
        self.spoil = False
        self.joined = False
        self.steps = 0
        self._process, self._member, self._store, self._disk = process, member, store, disk
        self._make_trainee = trainee
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Join, train, leave."""
        meter = Meter()
        run = await open_run(MeteredStore(self._store, meter))
        self._trainee = self._make_trainee(self._process.rng)
        model = self._trainee.model
        self._saved = Saved(model=model, optimizer=None, position=None, device=torch.device("cpu"))
        self._desk = Desk(
            run=run,
            name=self._member.name,
            incarnation=fresh_nonce(self._process.rng),
            device=torch.device("cpu"),
            clock=self._process.clock,
            rng=self._process.rng,
            offload=inline(self._process, self._member.compute_s),
            meter=meter,
            log=get_logger("gradientmail.learner", run=run.name, learner=self._member.slot),
            tags=self._member.tags,
        )
        self._exchange = Exchange(self._desk, news=self._news.set)
        self._training = Training(self._desk, model, self._exchange, discarded=lambda: None)
        await self._start(run)
        self.joined = True
        await race(self._exchange.run(), self._train())
        await self._exchange.leave()

    # -- where it starts ---------------------------------------------------------------------

    async def _start(self, run: Run) -> None:
        state = self._disk.get(self._member.slot)
        if state is None:
            await self._exchange.join({})
            self._training.start(self._exchange.take()[0])
            return
        tree = loaded(state, run, self._member.name)
        versions: list[Version] = []
        held: dict[int, Arrival] = {}
        for p, saved in enumerate(tree["training"]["fragments"]):
            version = await run.version(p, saved["version"])
            if version is None:
                raise RuntimeError("the state is ahead of the run")
            held[p] = Arrival(version=version, params=saved["committed"])
            versions.append(version)
        await self._exchange.join(held)
        self._saved.restore(tree)
        restore_training(self._training, tree, versions, torch.device("cpu"))
        self._exchange.outbox.restore(tree["outbox"])
        for p, fragment in enumerate(self._training.fragments):
            if fragment.posted:
                self._exchange.expect(p)

    # -- training ----------------------------------------------------------------------------

    @property
    def _done(self) -> bool:
        return self._exchange.ending or self.leaving.is_set()

    async def _train(self) -> None:
        clock = self._process.clock
        saved_at = clock.now()
        while not self._done:
            await clock.sleep(self._member.step_s * self._process.rng.uniform(0.8, 1.2))
            tokens = self._trainee.step(spoil=self.spoil)
            self.spoil = False
            self.steps += 1
            self._training.stepped(tokens, None)
            await self._settle()
            if clock.now() - saved_at >= SAVE_EVERY_S:
                self._save()
                saved_at = clock.now()
        await self._finish()

    async def _settle(self) -> None:
        """Exchange at a step boundary, and wait where the run's overlap says so."""
        while True:
            self._news.clear()
            if not isinstance(self._training.settle(), Hold) or self._done:
                return
            began = self._process.clock.now()
            await race(self._news.wait(), self.leaving.wait())
            self._training.waited(self._process.clock.now() - began)

    async def _finish(self) -> None:
        if self._exchange.ending:
            await self._wait_for_rounds()
        if self._desk.run.algorithm.flush_on_close:
            self._training.flush()
        await self._exchange.outbox.until_settled()
        self._save()

    async def _wait_for_rounds(self) -> None:
        clock, poll_s = self._process.clock, self._desk.run.manifest.settings.poll_s
        fragments = self._training.fragments
        deadline = clock.now() + max(one.version.estimates.timeout(poll_s) for one in fragments)
        while True:
            self._news.clear()
            self._training.settle()
            left_s = deadline - clock.now()
            if not self._training.publishing.in_flight or self._exchange.finished or left_s <= 0:
                return
            await race(self._news.wait(), clock.sleep(left_s))

    def _save(self) -> None:
        outbox = self._exchange.outbox.state()
        if self._member.keeps_state and outbox is not None:
            run = self._desk.run
            self._disk[self._member.slot] = self._saved.save(
                run, self._member.name, self._training, outbox
            )
