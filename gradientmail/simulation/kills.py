"""Deaths: a base scenario again and again, each time with one more death in it, or three."""

import random
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

from gradientmail.config import RunSettings
from gradientmail.simulation.checking import Verdict, verdict_on
from gradientmail.simulation.line import Line
from gradientmail.simulation.loop import rng_of
from gradientmail.simulation.scenario import Member, Scenario
from gradientmail.simulation.weather import Weather
from gradientmail.simulation.world import run_world

PAIR: Final = Scenario(
    seed=0,
    settings=RunSettings(
        sync_every=2,
        fragments=1,
        overlap_steps=0,
        uplink="I8",
        downlink="I8",
        keep_versions=1,
        poll_s=2.0,
        lease_s=12.0,
        presence_s=12.0,
    ),
    fleet=(
        Member(role="closer", slot="closer", name="closer"),
        Member(role="learner", slot="learner", name="learner", keeps_state=True, step_s=2.0),
    ),
    weather=Weather(),
    duration_s=14.0,
    calm_s=14.0,
)
"""Init, a closer and a learner in good weather: some rounds, a sweep, a stop."""

TEAM: Final = Scenario(
    seed=0,
    settings=RunSettings(
        sync_every=3,
        fragments=2,
        in_flight=2,
        overlap_steps=1,
        quorum=2,
        grace_s=3.0,
        max_staleness=1,
        alignment="adaptive",
        uplink="I4",
        published="BF16",
        flush_on_close=True,
        keep_versions=1,
        poll_s=2.0,
        lease_s=12.0,
        presence_s=12.0,
    ),
    fleet=(
        Member(role="closer", slot="closer", name="closer"),
        Member(role="closer", slot="rival", name="rival", joins_s=2.0),
        Member(role="learner", slot="quick", name="quick", keeps_state=True, step_s=1.0),
        Member(role="learner", slot="slow", name="slow", step_s=2.5),
    ),
    weather=Weather(),
    duration_s=12.0,
    calm_s=12.0,
)
"""Two closers, and two unequal learners of which one keeps its state; two fragments."""

BASES: Final = {"pair": PAIR, "team": TEAM}

OPERATIONS: Final = frozenset({"create", "put", "read", "fetch", "list", "delete"})


@dataclass(frozen=True)
class Death:
    """The ``life``-th process in ``slot`` dies at its ``operation``-th operation."""

    slot: str
    operation: int
    when: str
    life: int = 1

    def strike(self, line: Line, slot: str, life: int) -> None:
        """See ``world.Kill``."""
        if (slot, life) == (self.slot, self.life):
            line.kill_at = (self.operation, self.when)


@dataclass(frozen=True)
class Trial:
    """The scenario ``base`` with ``deaths`` in it."""

    base: str
    deaths: tuple[Death, ...]

    def judged(self) -> Verdict:
        """Return what the world comes to."""
        return verdict_on(run_world(BASES[self.base], kill=self._strike))

    def _strike(self, line: Line, slot: str, life: int) -> None:
        for death in self.deaths:
            death.strike(line, slot, life)


def every_death(base: str, operations: Container[str] = OPERATIONS) -> Iterator[Trial]:
    """Yield a trial for each single death of a first life at one of ``operations``.

    It dies just before the operation is sent, or just after it was applied.
    """
    for slot, sent in _sent(base).items():
        for number, operation in enumerate(sent, start=1):
            for when in ("before", "after") if operation in operations else ():
                yield Trial(base, (Death(slot, number, when),))


def triple_deaths(base: str, count: int, seed: int = 0) -> Iterator[Trial]:
    """Yield ``count`` trials of three deaths each, of any process in any of its first lives."""
    sent = _sent(base)
    for number in range(count):
        rng = rng_of("triple", base, seed, number)
        yield Trial(base, tuple(_drawn(rng, {slot: len(ops) for slot, ops in sent.items()})))


def _drawn(rng: random.Random, lengths: dict[str, int]) -> Iterator[Death]:
    for _ in range(3):
        slot = rng.choice(sorted(lengths))
        operation, when = rng.randint(1, lengths[slot]), rng.choice(["before", "after"])
        yield Death(slot, operation, when, life=rng.randint(1, 3))


def _sent(base: str) -> dict[str, list[str]]:
    """Return the operations that the first life of each slot sends, undisturbed."""
    outcome = run_world(BASES[base])
    slots = ("init", *(member.slot for member in BASES[base].fleet))
    return {
        slot: [
            event.what
            for event in outcome.events
            if event.process == f"{slot}#1" and event.what in OPERATIONS
        ]
        for slot in slots
    }
