"""One run of a small real model: its processes, its faults, and what it came to."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from gradientmail.algorithms.presets import preset
from gradientmail.chaos.places import Place
from gradientmail.chaos.processes import ChaosError, Processes
from gradientmail.chaos.recovery import Recoveries
from gradientmail.clock import Clock, system_random
from gradientmail.config import RunSettings, resolve
from gradientmail.learner.program import Program, load_program
from gradientmail.mailbox import Mailbox
from gradientmail.operations.creating import create_run
from gradientmail.store.base import Store
from gradientmail.store.url import open_store

PROGRAM: Final = "gradientmail.programs.digits:program"
LEARNERS: Final = ("ann", "bob")
LOOK_S: Final = 0.03
PATIENCE_S: Final = 240.0
"""Without a commit for that long, a run hangs."""

SETTINGS: Final[Mapping[str, Any]] = {
    "sync_every": 10,
    "fragments": 2,
    "in_flight": 2,
    "overlap_steps": 10,  # or learners train on alone while nobody closes
    "outer": "sgd",
    "outer_lr": 1.0,
    "grace_s": 0.2,
    "max_staleness": 1,
    "poll_s": 0.05,
    "lease_s": 1.0,
    "presence_s": 2.0,
    "retain": True,
}
"""The default preset's, but quick ones, and everything is kept."""

ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "GRADIENTMAIL_THREADS": "1",
    "GRADIENTMAIL_SAVE_EVERY_S": "0.2",
    "GRADIENTMAIL_RETRY_DEADLINE_S": "5",
}


@dataclass(slots=True)
class Stage:
    """A run and its processes; made by ``staged``.

    Attributes:
        url: The run.
        rounds: After that many it ends.
        rng: What a scenario draws from.
        did: What was done to the run, a line each.
        closed: Rounds closed so far, of all fragments.
        start_s: From starting the learners to the last one's first presence.
    """

    url: str
    place: Place
    program: Program
    settings: RunSettings
    store: Store
    processes: Processes
    clock: Clock
    rng: random.Random
    recoveries: Recoveries = field(default_factory=Recoveries)
    did: list[str] = field(default_factory=list)
    closed: int = 0
    start_s: float = 0.0
    _crashed: dict[str, asyncio.Event] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Return after how many rounds the run ends."""
        return self.settings.stop_after_rounds or 0

    # -- what scenarios do -------------------------------------------------------------------

    def start(self, name: str, **variables: str) -> None:
        """Start a learner, or a closer, of this name, with more variables."""
        if name in LEARNERS:
            state = str(self.place.local / f"state-{self.url.rpartition('/')[2]}" / name)
            words = ["learner", self.url, "--state-dir", state]
        else:
            words = ["closer", self.url, "--until-done"]
        self.processes.start(name, [*words, "--name", name], variables)

    def kill(self, name: str) -> None:
        """Kill a process, now; nothing happens to one that has ended."""
        if name in self.processes.running():
            self.processes.kill(name)
            self.fault(f"killed {name}")

    def fault(self, what: str) -> None:
        """Take note of a fault; recovery is measured from here."""
        self.did.append(what)
        self.recoveries.fault(self.clock.now())

    async def wait(self, low_s: float, high_s: float) -> None:
        """Let some time pass, as chance has it."""
        await self.clock.sleep(self.rng.uniform(low_s, high_s))

    async def until_closed(self, more: int) -> None:
        """Wait until that many more rounds are closed."""
        goal = self.closed + more
        while self.closed < goal:
            await self.clock.sleep(LOOK_S)

    async def crash(self, name: str, at: str) -> None:
        """Start a process that crashes at its store operation ``at``, and wait until it has."""
        crashed = self._crashed[name] = asyncio.Event()
        self.start(name, GRADIENTMAIL_CRASH_AT=at)
        await crashed.wait()
        self.fault(f"{name} crashed at {at}")

    async def holder(self) -> str | None:
        """Return which closer holds the lease."""
        mailbox = Mailbox(self.store)
        term = await mailbox.newest_term()
        beat = await mailbox.beat(term) if term else None
        return beat.closer if beat and not beat.released else None

    # -- what happens to every run -----------------------------------------------------------

    async def begin(self, closers: Mapping[str, Mapping[str, str]], **variables: str) -> None:
        """Start all learners (``variables`` are for the last one), then the closers."""
        began, mailbox = self.clock.now(), Mailbox(self.store)
        for name in LEARNERS:
            self.start(name, **(variables if name == LEARNERS[-1] else {}))
        while len(await mailbox.learners()) < len(LEARNERS):
            self.processes.died()
            await self.clock.sleep(LOOK_S)
        self.start_s = self.clock.now() - began
        for name, wrong in closers.items():
            self.start(name, **wrong)

    async def look(self) -> None:
        """Watch commits and crashes until the run's last round is closed.

        Raises:
            ChaosError: a process failed, or nothing is closed any more.
        """
        mailbox, versions = Mailbox(self.store), [0] * self.settings.fragments
        seen_at = self.clock.now()
        while self.closed < self.rounds:
            for name in self.processes.died():
                if event := self._crashed.get(name):
                    event.set()
            for fragment in range(len(versions)):
                while await mailbox.commit(fragment, versions[fragment] + 1):
                    versions[fragment] += 1
                    self.closed += 1
                    seen_at = self.clock.now()
                    self.recoveries.commit(seen_at)
            if self.clock.now() - seen_at > PATIENCE_S:
                words = "\n".join(map(self.processes.last_words, self.processes.running()))
                raise ChaosError(f"no round was closed for {PATIENCE_S:.0f} s\n{words}")
            await self.clock.sleep(LOOK_S)

    async def finish(self) -> None:
        """Wait until all processes that still run have ended by themselves.

        Raises:
            ChaosError: one failed, or does not end.
        """
        deadline = self.clock.now() + PATIENCE_S
        while running := [*self.processes.running()]:
            self.processes.died()
            if self.clock.now() > deadline:
                words = "\n".join(map(self.processes.last_words, running))
                raise ChaosError(f"the run is done, and {', '.join(running)} did not end\n{words}")
            await self.clock.sleep(LOOK_S)
        self.processes.died()


def settings_of(*, seed: int, rounds: int) -> RunSettings:
    """Return the settings of a run."""
    given = {**SETTINGS, "seed": seed, "stop_after_rounds": rounds}
    return resolve(RunSettings, ("preset", preset("decoupled-diloco")), ("chaos", given))


@contextlib.asynccontextmanager
async def staged(
    place: Place, home: Path, *, seed: int, rounds: int, clock: Clock
) -> AsyncIterator[Stage]:
    """Create a run of the digits program and yield its stage; at the end no process is left."""
    settings = settings_of(seed=seed, rounds=rounds)
    program = load_program(PROGRAM, device=torch.device("cpu"), seed=seed, data_seed=0)
    rng = random.Random(seed)  # noqa: S311 - faults that can be drawn again
    name = f"run-{seed}-{system_random().getrandbits(32):08x}"
    url = f"{place.url}/{name}"
    place.local.mkdir(parents=True, exist_ok=True)
    environment = {**ENVIRONMENT, **place.environment, "GRADIENTMAIL_SPOOL_DIR": str(place.local)}
    store = open_store(url, clock=clock, rng=system_random())
    try:
        await create_run(
            store, program.model, settings, program=PROGRAM, clock=clock, rng=system_random()
        )
        with Processes(home / "logs" / name, environment) as processes:
            yield Stage(url, place, program, settings, store, processes, clock, rng)
    finally:
        await store.close()
