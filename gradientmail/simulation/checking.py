"""A seed on trial: its world is run and judged, and a failing one is made small."""

from collections import Counter
from dataclasses import dataclass, replace

import msgspec
import torch
import xxhash

from gradientmail.simulation.bounds import check_costs, check_storage
from gradientmail.simulation.checks import check_counts, check_history, check_presences
from gradientmail.simulation.families import FAMILIES
from gradientmail.simulation.rederiving import check_versions
from gradientmail.simulation.scenario import Scenario
from gradientmail.simulation.sightings import sightings_of
from gradientmail.simulation.world import Outcome, run_world
from gradientmail.testing.forging import Outcome as Fate


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a world came to.

    Attributes:
        wrong: Everything that must not be, in words.
        seen: What happened in it, for the sum over a batch.
        digest: Of its whole log: equal for equal seeds.
    """

    seed: int
    wrong: tuple[str, ...]
    seen: Counter[str]
    digest: str
    operations: int
    virtual_s: float
    commits: int


def judged(scenario: Scenario) -> Verdict:
    """Run a scenario and judge it."""
    return verdict_on(run_world(scenario))


def judged_seed(seed: int, family: str = "any") -> Verdict:
    """Run the world of ``seed`` in one of ``families.FAMILIES`` and judge it."""
    return judged(FAMILIES[family](seed))


@torch.inference_mode()
def verdict_on(outcome: Outcome) -> Verdict:
    """Judge what happened in a world."""
    history = check_history(outcome.mutations)
    bad = {key for key, fate in outcome.forged.items() if fate is not Fate.ACCEPTED}
    wrong = [
        *outcome.failures,
        *history,
        *check_counts(outcome.mutations, outcome.steps, bad),
        *check_presences(outcome.mutations),
        *check_costs(outcome.scenario, outcome.lines, outcome.mutations),
        *check_storage(outcome.scenario, outcome.mutations),
        *([] if history else check_versions(outcome.mutations)),
    ]
    return Verdict(
        seed=outcome.scenario.seed,
        wrong=tuple(wrong),
        seen=sightings_of(outcome),
        digest=log_digest(outcome),
        operations=outcome.operations,
        virtual_s=outcome.ended_s,
        commits=sum(change.key.startswith("commits/") for change in outcome.mutations),
    )


def log_digest(outcome: Outcome) -> str:
    """Return the digest of every event and every change."""
    return xxhash.xxh3_128_hexdigest(msgspec.msgpack.encode([outcome.events, outcome.mutations]))


def shrunk(scenario: Scenario) -> Scenario:
    """Return a smaller scenario that is still judged wrong: parts are left out one by one."""
    best, again = scenario, True
    while again:
        again = False
        for smaller in _without_one(best):
            if judged(smaller).wrong:
                best, again = smaller, True
                break
    return best


def _without_one(scenario: Scenario) -> list[Scenario]:
    """Return the scenario without each of its parts."""
    weather = scenario.weather
    fleet = [
        replace(scenario, fleet=tuple(one for one in scenario.fleet if one is not member))
        for member in scenario.fleet
        if sum(one.role == member.role for one in scenario.fleet) > 1
    ]
    spells = [
        replace(weather, spells=tuple(one for one in weather.spells if one is not spell))
        for spell in weather.spells
    ]
    rates = [
        replace(weather, rates={f: r for f, r in weather.rates.items() if f is not fault})
        for fault in weather.rates
    ]
    incidents = [
        replace(scenario, incidents=tuple(one for one in scenario.incidents if one is not dropped))
        for dropped in scenario.incidents
    ]
    return [*fleet, *(replace(scenario, weather=w) for w in (*spells, *rates)), *incidents]
