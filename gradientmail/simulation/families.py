"""Families of worlds: ``any`` draws everything; each other one presses on a single point.

What happens once in a hundred worlds of ``any`` happens in most worlds of its own family, so a
handful of seeds shows that it is survived, or that a planted bug is found.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from msgspec import structs

from gradientmail.simulation.loop import rng_of
from gradientmail.simulation.scenario import Incident, Member, Scenario, scenario_of
from gradientmail.simulation.weather import Fault, Spell, Weather


def any_world(seed: int) -> Scenario:
    """Everything is drawn; every second world becomes calm, and must then go on."""
    return scenario_of(seed, liveness=seed % 2 == 1, broad=True)


def forged_heads(seed: int) -> Scenario:
    """Nothing fails, but the head hint is put back to an old one all the time."""
    world = scenario_of(seed, liveness=True)
    rng = rng_of("forged", seed)
    count = int(world.duration_s / world.settings.poll_s)
    times = sorted(rng.uniform(0.0, world.duration_s) for _ in range(count))
    return replace(
        world,
        fleet=(_closers(world)[0], *_learners(world)),
        weather=Weather(),
        incidents=tuple(Incident(at_s=at, kind="restore") for at in times),
    )


def defaced(seed: int) -> Scenario:
    """Nothing fails, but heads, beats and presences are overwritten with rubbish all the time."""
    world, rng = scenario_of(seed, liveness=True), rng_of("defaced", seed)
    count = int(world.duration_s / world.settings.poll_s)
    incidents = [
        Incident(at_s=rng.uniform(0.0, world.duration_s), kind=rng.choice(["deface", "forge"]))
        for _ in range(count)
    ]
    return replace(
        world,
        weather=Weather(),
        incidents=tuple(sorted(incidents, key=lambda one: one.at_s)),
        lease="kept",
    )


def rivals(seed: int) -> Scenario:
    """Three closers without a lease close every round at the same time."""
    world = any_world(seed)
    closer = replace(_closers(world)[0], joins_s=0.0, compute_s=0.3, leaves_s=float("inf"))
    closers = (
        replace(closer, slot=f"closer-{index}", name=f"closer-{index}") for index in range(3)
    )
    return replace(world, fleet=(*closers, *_learners(world)), lease="no-lease")


def left_behind(seed: int) -> Scenario:
    """One closer is paused until its round's mail has been swept; the other one then leaves."""
    world = scenario_of(seed, liveness=True)
    closer, end_s = _closers(world)[0], 3 * world.duration_s
    first = replace(closer, slot="closer-0", name="closer-0", joins_s=0.0)
    second = replace(closer, slot="closer-1", name="closer-1", joins_s=1.0, leaves_s=0.9 * end_s)
    pause = Incident(at_s=0.2 * end_s, kind="pause", slot="closer-0", seconds=0.5 * end_s)
    return replace(
        world,
        fleet=(first, second, *_learners(world)),
        weather=Weather(),
        incidents=(pause,),
        duration_s=end_s,
        calm_s=end_s,
        settings=structs.replace(world.settings, keep_versions=1),
    )


def restarts(seed: int) -> Scenario:
    """Learners that keep their state are killed all the time, where stale mail counts."""
    world, rng = scenario_of(seed, liveness=True), rng_of("restarts", seed)
    end_s = 2 * world.duration_s
    learners = [
        replace(one, keeps_state=True, joins_s=0.0, leaves_s=float("inf"))
        for one in _learners(world)
    ]
    kills = [
        Incident(at_s=rng.uniform(0.0, end_s), kind="kill", slot=one.slot)
        for one in learners
        for _ in range(8)
    ]
    settings = structs.replace(
        world.settings,
        max_staleness=rng.randint(1, 2),
        alignment=rng.choice(["carry", "adaptive"]),
        mixing=0.0,
    )
    return replace(
        world,
        fleet=(_closers(world)[0], *learners),
        weather=Weather(),
        incidents=tuple(sorted(kills, key=lambda one: one.at_s)),
        settings=settings,
        duration_s=end_s,
        calm_s=end_s,
    )


def slow_joiner(seed: int) -> Scenario:
    """A learner joins again and again over a slow line, while nearly every version is swept."""
    world = scenario_of(seed, liveness=True)
    end_s = world.duration_s
    quick = Member(role="learner", slot="quick", name="quick", step_s=1.0)
    joiner = Member(role="learner", slot="joiner", name="joiner", step_s=5.0)
    kills = (Incident(at_s=end_s * at / 8, kind="kill", slot="joiner") for at in range(8))
    slow = Spell(fault=Fault.SLOW, start_s=0.0, end_s=end_s, rate=0.25, process="joiner")
    settings = structs.replace(
        world.settings,
        sync_every=1,
        fragments=1,
        in_flight=1,
        keep_versions=1,
        quorum=1,
        grace_s=0.0,
        poll_s=1.0,
    )
    return replace(
        world,
        fleet=(_closers(world)[0], quick, joiner),
        weather=Weather(spells=(slow,)),
        incidents=tuple(kills),
        settings=settings,
    )


def unseen_objects(seed: int) -> Scenario:
    """New objects are not read at once: more than a store may do to us, less than none does."""
    world = any_world(seed)
    rates = {**world.weather.rates, Fault.UNSEEN: 0.05}
    return replace(world, weather=replace(world.weather, rates=rates))


FAMILIES: Final[dict[str, Callable[[int], Scenario]]] = {
    "any": any_world,
    "defaced": defaced,
    "forged-heads": forged_heads,
    "left-behind": left_behind,
    "restarts": restarts,
    "rivals": rivals,
    "slow-joiner": slow_joiner,
    "unseen-objects": unseen_objects,
}


def _closers(world: Scenario) -> list[Member]:
    return [member for member in world.fleet if member.role == "closer"]


def _learners(world: Scenario) -> list[Member]:
    return [member for member in world.fleet if member.role == "learner"]
