"""A run on virtual time: the real learners and closers over a store in memory.

Counts that depend on no machine: waiting costs nothing, and what happens is always the same.
"""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from torch import nn

from benchmarks.logged import Log, LoggedStore
from gradientmail.algorithms.presets import preset
from gradientmail.config import RunSettings, resolve
from gradientmail.operations.creating import create_run
from gradientmail.records import keys
from gradientmail.records.canonical import digest_of, encode
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.records.estimates import Estimates
from gradientmail.records.head import Head, Standing, Voucher, digest_beside
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import Manifest
from gradientmail.records.presence import Presence
from gradientmail.simulation.actors import SimulatedCloser, SimulatedLearner
from gradientmail.simulation.loop import rng_of
from gradientmail.simulation.process import ClockError, Process
from gradientmail.simulation.scenario import Member
from gradientmail.simulation.tiny import TinyModel
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore

NONCE = "0" * 32
A = TypeVar("A", SimulatedLearner, SimulatedCloser)


def settings_of(**changes: Any) -> RunSettings:
    """Return the default preset's settings with changes."""
    return resolve(
        RunSettings, ("preset", preset("decoupled-diloco")), ("benchmark", dict(changes))
    )


@dataclass
class World:
    """Some processes over one store. Create it within a virtual loop.

    Attributes:
        latency_s: What every operation takes.
    """

    settings: RunSettings
    latency_s: float = 0.05
    store: Store = field(default_factory=MemoryStore)
    log: Log = field(default_factory=Log)
    actors: dict[str, SimulatedLearner | SimulatedCloser] = field(default_factory=dict)
    spool: Path = Path("/nonexistent")
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return asyncio.get_running_loop().time()

    async def create(self, model: nn.Module | None = None) -> Manifest:
        """Create the run."""
        process = self._process("init")
        return await create_run(
            self.store,
            model or TinyModel(),
            self.settings,
            clock=process.clock,
            rng=process.rng,
        )

    def learner(self, name: str, step_s: float) -> SimulatedLearner:
        """Start a learner."""
        member = Member(role="learner", slot=name, name=name, compute_s=0.01, step_s=step_s)
        process = self._process(name)
        actor = SimulatedLearner(process, member, self._line(name), {})
        return self._start(name, actor)

    def closer(self, name: str) -> SimulatedCloser:
        """Start a closer."""
        member = Member(role="closer", slot=name, name=name, compute_s=0.01)
        process = self._process(name)
        actor = SimulatedCloser(process, member, self._line(name), self.spool / name)
        return self._start(name, actor)

    async def until(self, at_s: float) -> None:
        """Let them live until then; raises what one of them died of."""
        await asyncio.wait(self._tasks, timeout=max(0.0, at_s - self.now))
        for task in self._tasks:
            if task.done():
                task.result()

    async def end(self) -> None:
        """Kill them all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, name: str, actor: A) -> A:
        self.actors[name] = actor
        self._tasks.append(asyncio.create_task(actor.run()))
        return actor

    def _line(self, name: str) -> LoggedStore:
        return LoggedStore(self.store, self.log, name, self.latency_s)

    def _process(self, name: str) -> Process:
        return Process(name, ClockError(), rng_of("benchmark", name))


@asynccontextmanager
async def world(settings: RunSettings, **options: Any) -> AsyncIterator[World]:
    """Make a world with a spool on disk, and end it."""
    with tempfile.TemporaryDirectory(prefix="gradientmail-bench-") as spool:
        made = World(settings, spool=Path(spool), **options)
        try:
            yield made
        finally:
            await made.end()


# -- a long history, without living through it ----------------------------------------------


async def write_history(store: Store, manifest: Manifest, rounds: int, learners: int) -> None:
    """Write the records that ``rounds`` rounds leave behind, and the newest versions' payloads.

    Two learners took part in each; the closer that held the lease released it. The last commit
    vouches for all fragments.
    """
    fragments = len(manifest.fragments)
    standings: list[Standing] = []
    names = [f"past-{index}" for index in range(learners)]
    for p in range(fragments):
        spec, parent = manifest.fragments[p], digest_of(encode(manifest))
        payload = await store.read(spec.params.key)
        assert payload is not None
        versions = rounds // fragments
        for version in range(1, versions + 1):
            params = msgspec.structs.replace(
                spec.params, key=keys.payload(p, version, NONCE, "params")
            )
            newest = (p, version) == (fragments - 1, versions)
            record = RoundRecord(
                run=manifest.run,
                fragment=p,
                version=version,
                parent=parent,
                params=params,
                participants=tuple(_took_part(p, version - 1, name) for name in names),
                applied=dict.fromkeys(names, version - 1),
                estimates=Estimates(step_s=1.0, quorum_s=1.0, sync_s=0.5),
                beside=digest_beside(standings) if newest else None,
                closer="past",
                term=1,
                nonce=NONCE,
            )
            data = encode(record)
            parent = digest_of(data)
            await store.create(keys.commit(p, version), data)
        await store.put(keys.payload(p, versions, NONCE, "params"), [payload])
        standings.append(Standing(fragment=p, version=versions, digest=parent, params=params))
    voucher = Voucher(fragments - 1, rounds // fragments, tuple(standings[:-1]))
    await _leave_behind(store, manifest, voucher, names)


async def _leave_behind(
    store: Store, manifest: Manifest, voucher: Voucher, names: Iterable[str]
) -> None:
    run, versions = manifest.run, (voucher.version,) * len(manifest.fragments)
    term = Term(run=run, term=1, closer="past", nonce=NONCE)
    await store.create(keys.term(1), encode(term))
    beat = Beat(term=1, closer="past", count=9, released=True)
    await store.put(keys.beat(1), [encode(beat)])
    head = Head(run=run, term=1, closer="past", versions=versions, voucher=voucher)
    await store.put(keys.HEAD, [encode(head)])
    for name in names:
        presence = Presence(run=run, learner=name, incarnation=NONCE, count=1, versions=versions)
        await store.put(keys.learner(name), [encode(presence)])


def _took_part(fragment: int, base: int, name: str) -> Participant:
    rng = random.Random(f"{fragment}/{base}/{name}")
    nonce = f"{rng.getrandbits(128):032x}"
    return Participant(
        learner=name,
        incarnation=NONCE,
        nonce=nonce,
        base=base,
        steps=100,
        tokens=10_000,
        weight=1e6,
        norm=0.5,
        clip=1.0,
        key=keys.mail(fragment, base, name, nonce),
        digest=f"xxh3_128:{nonce}",
    )
