"""A hostile learner: it posts what is bad in one way, and claims what is not so."""

import asyncio
import random
from collections.abc import MutableMapping

from gradientmail.clock import fresh_nonce
from gradientmail.errors import RecordError, StoreError
from gradientmail.records import keys
from gradientmail.records.presence import Presence
from gradientmail.run import Run, open_run
from gradientmail.simulation.process import Process
from gradientmail.simulation.scenario import Member
from gradientmail.store.base import Store
from gradientmail.testing.damage import broken_records
from gradientmail.testing.forging import Outcome
from gradientmail.testing.hostile import drawn_mail

WILDEST = 2**53 - 1


class SimulatedHostile:
    """Posts hostile mail and presences until the run is asked to stop.

    Attributes:
        leaving: It never leaves in good order.
        joined, steps: As of every actor.
    """

    steps = 0

    def __init__(
        self, process: Process, member: Member, store: Store, posted: MutableMapping[str, Outcome]
    ) -> None:
        self.joined = False
        self.leaving = asyncio.Event()
        self._process, self._member, self._store, self._posted = process, member, store, posted

    async def run(self) -> None:
        """Do harm."""
        process, run = self._process, await open_run(self._store)
        self.joined = True
        while True:
            await process.clock.sleep(self._member.step_s * process.rng.uniform(0.5, 1.5))
            try:
                if await run.mailbox.stop_reason() is not None:
                    return
                await (self._post(run) if process.rng.random() < 0.8 else self._claim(run))
            except (StoreError, RecordError):
                continue

    async def _post(self, run: Run) -> None:
        rng = self._process.rng
        base = await run.newest(rng.randrange(len(run.layouts)))
        for specimen in drawn_mail(run, base, rng, count=rng.randint(1, 3)):
            self._posted[specimen.key] = specimen.outcome
            await self._store.put(specimen.key, [specimen.body()])

    async def _claim(self, run: Run) -> None:
        """Say that it is there, or that someone is, in a form or with claims that are wild."""
        rng = self._process.rng
        name = rng.choice([self._member.name, "mallory"])
        wild = Presence(
            run=run.name,
            learner=name,
            incarnation=fresh_nonce(rng),
            count=rng.choice([0, WILDEST]),
            versions=_wild_versions(rng, len(run.layouts)),
        )
        if rng.random() < 0.5:
            await run.mailbox.put_presence(wild)
            return
        broken = [body for _, body in broken_records(b'{"kind":"presence/1"}')]
        await self._store.put(keys.learner(name), [rng.choice(broken)])


def _wild_versions(rng: random.Random, fragments: int) -> tuple[int, ...]:
    choices = [(0,) * fragments, (WILDEST,) * fragments, (), (1,) * 5000]
    return rng.choice(choices)
