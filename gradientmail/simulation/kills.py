"""Every single kill: the base scenario again and again, each time with one more death in it."""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Final

from gradientmail.config import RunSettings
from gradientmail.simulation.checking import Verdict, verdict_on
from gradientmail.simulation.line import Line
from gradientmail.simulation.scenario import Member, Scenario
from gradientmail.simulation.weather import Weather
from gradientmail.simulation.world import run_world

BASE: Final = Scenario(
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


def every_death(
    scenario: Scenario = BASE, operations: Container[str] = OPERATIONS
) -> Iterator[tuple[Death, Verdict]]:
    """Yield each single death of a first life at one of ``operations``, and its verdict.

    It dies just before the operation is sent, or just after it was applied.
    """
    outcome = run_world(scenario)
    for slot in ("init", *(member.slot for member in scenario.fleet)):
        sent = [
            event.what
            for event in outcome.events
            if event.process == f"{slot}#1" and event.what in OPERATIONS
        ]
        for number, operation in enumerate(sent, start=1):
            for when in ("before", "after") if operation in operations else ():
                death = Death(slot, number, when)
                yield death, verdict_on(run_world(scenario, kill=death.strike))
