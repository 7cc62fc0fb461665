"""What is done to a run. Each scenario goes on until it is ended, because the run is done."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from gradientmail.chaos.places import SkippedError
from gradientmail.chaos.stage import LEARNERS, Stage
from gradientmail.tasks import race
from gradientmail.testing.proxy import Message, Wire, healthy

CLOSER, SECOND = "closer", "closer-2"
ONE: Mapping[str, Mapping[str, str]] = {CLOSER: {}}
TWO: Mapping[str, Mapping[str, str]] = {CLOSER: {}, SECOND: {}}

POINTS_A_RUN = 8
CLOSER_POINTS, LEARNER_POINTS = 96, 64
"""Operations after which a closer has closed several rounds, and a learner has posted some."""

WIRE_RATE = 0.1
OUTAGE_S = 1.5
FULL_S = 2.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """How a run begins, and what is then done to it.

    Attributes:
        disturb: Returns or goes on for as long as the run does.
        closers: Those it begins with, and what is wrong with each.
        learner: What is wrong with the last learner.
        wire: It takes a proxy before the store.
        disk: It takes small disks.
    """

    what: str
    disturb: Callable[[Stage], Awaitable[None]]
    closers: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: ONE)
    learner: Mapping[str, str] = field(default_factory=dict)
    wire: bool = False
    disk: bool = False


async def nothing(stage: Stage) -> None:
    """Leave the run alone."""
    await stage.until_closed(stage.rounds)


# -- crashes --------------------------------------------------------------------------------


def crash_points(seed: int, last: int) -> list[str]:
    """Return the points of one run: seeds 0, 1, 2, ... go through 1 to ``last``, and again."""
    first = seed * POINTS_A_RUN % last
    return [
        f"{number + 1}:{when}"
        for number in range(first, first + POINTS_A_RUN)
        for when in ("before", "after")
    ]


async def crash_closer(stage: Stage) -> None:
    """Crash a closer at one operation after another; each finds what the one before left."""
    for at in crash_points(stage.settings.seed, CLOSER_POINTS):
        await stage.crash(CLOSER, at)
    stage.start(CLOSER)


async def crash_learner(stage: Stage) -> None:
    """Crash a learner in the same way; it goes on from its state."""
    stage.kill(LEARNERS[0])
    for at in crash_points(stage.settings.seed, LEARNER_POINTS):
        await stage.crash(LEARNERS[0], at)
    stage.start(LEARNERS[0])


async def kill_anyone(stage: Stage) -> None:
    """Kill somebody at a random instant, sometimes all; start them again.

    Half a run is the longest between two of them: one of few rounds may last no second.
    """
    everyone = (CLOSER, *LEARNERS)
    while True:
        await race(stage.wait(0.2, 2.5), stage.until_closed(stage.rounds // 2))
        names = everyone if stage.rng.random() < 0.15 else (stage.rng.choice(everyone),)
        for name in names:
            stage.kill(name)
        await stage.wait(0.0, 1.0)
        for name in names:
            stage.start(name)


# -- clocks and pauses ----------------------------------------------------------------------


async def pause_closer(stage: Stage) -> None:
    """Stop the closer that holds the lease for twice that long; then let it go on, unknowing."""
    while True:
        await stage.until_closed(2)
        name = await stage.holder()
        if name is None or name not in stage.processes.running():
            continue
        go_on = stage.processes.stop(name)
        stage.fault(f"stopped {name}")
        try:
            await stage.clock.sleep(2.0 * stage.settings.lease_s)
        finally:
            go_on()


async def kill_holder(stage: Stage) -> None:
    """Kill the closer that holds the lease, whose clock may be wrong, and start it again."""
    wrong = SCENARIOS["clocks"].closers
    while True:
        await stage.until_closed(3)
        name = await stage.holder()
        if name is None or name not in stage.processes.running():
            continue
        stage.kill(name)
        await stage.wait(0.0, 1.0)
        stage.start(name, **wrong[name])


# -- disks and wires ------------------------------------------------------------------------


async def fill_disks(stage: Stage) -> None:
    """Fill the store's disk, or the one with states and spools, to the last byte; empty it."""
    if not stage.place.disks:
        raise SkippedError("there is no small disk to fill")
    while True:
        await stage.until_closed(2)
        disk = stage.rng.choice(stage.place.disks)
        disk.fill()
        try:
            await stage.clock.sleep(FULL_S)
        finally:  # also where the run came to its end meanwhile
            disk.empty()
            stage.fault(f"{disk.root.name} was full")


def spoiling(rng: random.Random) -> Callable[[Message], Wire | None]:
    """Return a plan by which one request in ten goes wrong, in one of eight ways."""
    ways = (
        Wire.DROP_REQUEST,
        Wire.DROP_ANSWER,
        Wire.UNAVAILABLE_AFTER,
        Wire.CONFLICT,
        Wire.DELAY_ANSWER,
        Wire.CUT_ANSWER,
        Wire.REPEAT_ANSWER,
        Wire.REPEAT_REQUEST,
    )
    return lambda _: rng.choice(ways) if rng.random() < WIRE_RATE else None


async def spoil_wire(stage: Stage) -> None:
    """Break one request in ten, and now and then all of them for a while."""
    proxy = stage.place.proxy
    if proxy is None:
        raise SkippedError("there is no proxy before this store")
    plan = spoiling(stage.rng)
    try:
        proxy.plan = plan
        while True:
            await stage.wait(1.0, 4.0)
            proxy.plan = lambda _: Wire.DROP_REQUEST
            await stage.clock.sleep(OUTAGE_S)
            proxy.plan = plan
            stage.fault(f"nothing passed for {OUTAGE_S} s")
    finally:
        proxy.plan = healthy


SCENARIOS: dict[str, Scenario] = {
    "crash-closer": Scenario(
        "a closer kills itself at its n-th store operation, before or after it",
        crash_closer,
        closers={},
    ),
    "crash-learner": Scenario(
        "a learner kills itself at its n-th store operation, before or after it", crash_learner
    ),
    "kills": Scenario("SIGKILL at random instants, also of all at once", kill_anyone),
    "pause": Scenario(
        "the closer is stopped for twice its lease, another one beside it", pause_closer, TWO
    ),
    "clocks": Scenario(
        "one closer a million seconds ahead and four times as fast, a learner behind and slow",
        kill_holder,
        closers={CLOSER: {}, SECOND: {"GRADIENTMAIL_CLOCK": "1000000x4"}},
        learner={"GRADIENTMAIL_CLOCK": "-1000000x0.5"},
    ),
    "full-disk": Scenario(
        "a tmpfs with the store, or states and spools, is filled and emptied",
        fill_disks,
        disk=True,
    ),
    "wire": Scenario(
        "a proxy drops, delays, cuts and repeats requests and answers", spoil_wire, wire=True
    ),
}

TWIN = Scenario("nothing", nothing)
