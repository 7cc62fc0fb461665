"""One world: the processes of a scenario over one bucket, from the run's creation to the end."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.learner.state import State
from gradientmail.operations.creating import create_run
from gradientmail.simulation import operator
from gradientmail.simulation.actors import SimulatedCloser, SimulatedLearner
from gradientmail.simulation.bucket import Bucket, Mutation
from gradientmail.simulation.hostile import SimulatedHostile
from gradientmail.simulation.line import Event, Line
from gradientmail.simulation.loop import rng_of, run_virtual, wait_until
from gradientmail.simulation.planted import planted
from gradientmail.simulation.process import ClockError, Process
from gradientmail.simulation.progress import Goal
from gradientmail.simulation.scenario import Incident, Member, Scenario
from gradientmail.simulation.tiny import TinyModel
from gradientmail.simulation.weather import Weather
from gradientmail.store.retrying import RetryingStore
from gradientmail.testing.forging import Outcome as Fate

Actor = SimulatedCloser | SimulatedLearner | SimulatedHostile

RESTART_S = 10.0
"""How soon a process is started again that could not reach the store."""

OUT_OF_REACH = (StoreUnavailableError, StoreFullError)

Kill = Callable[[Line, str, int], object]
"""Told of each life's line, slot and number: where a test arranges a death."""


@dataclass
class Outcome:
    """What happened in a world.

    Attributes:
        mutations: Every change of the bucket, in order.
        events: Every operation and every incident, in order.
        failures: What went wrong that the bucket does not show: a process that died of itself,
            a run that stood still.
        steps: Inner steps taken under each learner's name.
        forged: What must become of each object of hostile mail.
        lines: Every process's line to the bucket.
        ended_s: Virtual seconds.
    """

    scenario: Scenario
    mutations: list[Mutation] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    forged: dict[str, Fate] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    ended_s: float = 0.0

    @property
    def operations(self) -> int:
        """Operations sent."""
        return sum(line.operations for line in self.lines)


@dataclass
class _Life:
    """One life of one slot."""

    process: Process
    task: asyncio.Task[None]
    actor: Actor
    leaving: bool = False
    again_s: float = 0.0


@torch.inference_mode()
def run_world(scenario: Scenario, *, kill: Kill = lambda *_: None) -> Outcome:
    """Run a scenario to its end; equal scenarios have equal outcomes.

    Nothing in it asks for a gradient, and what torch would note for one is a tenth of the cost.
    """
    memory_disk = Path("/dev/shm")  # noqa: S108 - only closers' spools are there
    parent = memory_disk if memory_disk.is_dir() else None
    spools = tempfile.TemporaryDirectory(prefix="gradientmail-", dir=parent)
    lease = () if scenario.lease == "kept" else (scenario.lease,)
    with spools as spool, planted(*lease):
        return run_virtual(_run(scenario, Path(spool), kill))


async def _run(scenario: Scenario, spool: Path, kill: Kill) -> Outcome:
    return await World(scenario, spool, kill).run()


class World:
    """Runs one scenario. Create it inside a virtual loop."""

    def __init__(self, scenario: Scenario, spool: Path, kill: Kill) -> None:
        self._scenario, self._spool, self._kill = scenario, spool, kill
        self._outcome = Outcome(scenario)
        self._now = asyncio.get_running_loop().time
        self._bucket = Bucket(self._now, self._outcome.mutations)
        self._lives: dict[str, _Life] = {}
        self._count: dict[str, int] = {}
        self._disk: dict[str, State] = {}
        self._actors: list[tuple[str, Actor]] = []

    async def run(self) -> Outcome:
        """Create the run, let everyone live, and see the end."""
        await self._create_run()
        start = asyncio.create_task
        members = [start(self._inhabit(member)) for member in self._scenario.fleet]
        beside = [start(self._leave(member)) for member in self._scenario.fleet]
        beside.append(start(self._befall()))
        try:
            await wait_until(self._scenario.duration_s)
            if self._scenario.calm_s <= self._scenario.duration_s:
                await self._come_to_an_end(members)
        finally:
            for life in self._lives.values():
                life.process.kill()
            for task in (*members, *beside):
                task.cancel()
            await asyncio.gather(*members, *beside, return_exceptions=True)
        for name, actor in self._actors:
            self._outcome.steps[name] = self._outcome.steps.get(name, 0) + actor.steps
        self._outcome.ended_s = self._now()
        return self._outcome

    # -- lives -------------------------------------------------------------------------------

    async def _create_run(self) -> None:
        """Create the run in good weather; another attempt follows where a test kills the first."""
        settings = self._scenario.settings
        while self._bucket.read("manifest.json") is None:
            process, _, store = self._process("init", ClockError(), Weather())
            creating = create_run(
                store, TinyModel(), settings, clock=process.clock, rng=process.rng
            )
            task = asyncio.create_task(creating)
            process.on_death(task.cancel)
            await asyncio.wait([task])
            if process.alive:
                task.result()

    async def _inhabit(self, member: Member) -> None:
        """Live in one slot, life after life."""
        await wait_until(member.joins_s)
        while True:
            life = self._begin(member)
            await asyncio.wait([life.task])
            again_s = self._again_s(life)
            if again_s is None or life.leaving:
                return
            await wait_until(self._now() + again_s)

    def _begin(self, member: Member) -> _Life:
        process, _, store = self._process(member.slot, member.clock, self._scenario.weather)
        actor: Actor
        if member.role == "learner":
            actor = SimulatedLearner(process, member, store, self._disk)
        elif member.role == "hostile":
            actor = SimulatedHostile(process, member, store, self._outcome.forged)
        else:
            spool = self._spool / process.name.replace("#", "-")
            actor = SimulatedCloser(process, member, store, spool)
        life = _Life(process, asyncio.create_task(actor.run()), actor)
        process.on_death(life.task.cancel)
        self._lives[member.slot] = life
        self._actors.append((member.name, actor))
        self._note(process.name, "restored" if member.slot in self._disk else "started")
        return life

    def _again_s(self, life: _Life) -> float | None:
        """Say how a life ended; return the seconds until the next one, if there is one."""
        name, task = life.process.name, life.task
        if not life.process.alive:
            self._note(name, "killed")
            return life.again_s
        if task.cancelled():
            self._note(name, "left")
            return None
        error = task.exception()
        if error is None:
            self._note(name, "ended")
            return None
        self._note(name, "died", f"{type(error).__name__}: {error}")
        if isinstance(error, OUT_OF_REACH) and (life.leaving or not life.actor.joined):
            return RESTART_S
        self._outcome.failures.append(f"{name} died of itself: {type(error).__name__}: {error}")
        return RESTART_S

    def _process(
        self, slot: str, error: ClockError, weather: Weather
    ) -> tuple[Process, Line, RetryingStore]:
        number = self._count[slot] = self._count.get(slot, 0) + 1
        seed = self._scenario.seed
        process = Process(f"{slot}#{number}", error, rng_of("process", seed, slot, number))
        chance = rng_of("line", seed, slot, number)
        line = Line(process, self._bucket, weather, self._outcome.events, chance)
        self._outcome.lines.append(line)
        self._kill(line, slot, number)
        deadline_s = self._scenario.retry_deadline_s
        store = RetryingStore(line, process.clock, process.rng, deadline_s=deadline_s)
        return process, line, store

    # -- what befalls them -------------------------------------------------------------------

    async def _leave(self, member: Member) -> None:
        await wait_until(min(member.leaves_s, 1e9))
        life = self._lives.get(member.slot)
        if life is None:
            return
        life.leaving = True
        self._note(life.process.name, "asked to leave")
        if isinstance(life.actor, SimulatedLearner):
            life.actor.leaving.set()
        else:
            life.task.cancel()

    async def _befall(self) -> None:
        chance = rng_of("operator", self._scenario.seed)
        for incident in self._scenario.incidents:
            await wait_until(incident.at_s)
            match incident.kind:
                case "foreign":
                    operator.add_foreign(self._bucket, chance)
                case "delete":
                    operator.delete_some(self._bucket, chance)
                case "deface":
                    operator.deface(self._bucket, chance)
                case "forge" | "restore":
                    back = incident.kind == "restore"
                    operator.forge_head(self._bucket, chance, back=back)
                case _:
                    self._strike(incident)

    def _strike(self, incident: Incident) -> None:
        life = self._lives.get(incident.slot)
        if life is None:
            return
        self._note(life.process.name, incident.kind, f"{incident.seconds:.3f}")
        if incident.kind == "pause":
            life.process.pause(incident.seconds)
        elif incident.kind == "spoil" and isinstance(life.actor, SimulatedLearner):
            life.actor.spoil = True
        elif incident.kind == "kill":
            life.again_s = incident.seconds
            life.process.kill()

    def _note(self, process: str, what: str, outcome: str = "") -> None:
        self._outcome.events.append(Event(self._now(), process, what, "", outcome))

    # -- a calm end --------------------------------------------------------------------------

    async def _come_to_an_end(self, members: list[asyncio.Task[None]]) -> None:
        """Ask for progress now that nothing goes wrong any more, then for an end of the run."""
        goal = Goal(self._scenario, self._bucket, self._now())
        while not goal.reached():
            if self._now() > goal.until_s:
                self._outcome.failures.append(goal.complaint())
                return
            await wait_until(self._now() + 5.0)
        operator.ask_to_stop(self._bucket)
        goal = Goal(self._scenario, self._bucket, self._now())
        deadline_s = goal.until_s
        while not all(task.done() for task in members):
            if self._now() > deadline_s:
                late = [n for n, t in zip(self._lives, members, strict=False) if not t.done()]
                self._outcome.failures.append(
                    f"asked to stop, and not ended within {goal.bound_s:.0f} s: {late}"
                )
                return
            await wait_until(self._now() + 5.0)
