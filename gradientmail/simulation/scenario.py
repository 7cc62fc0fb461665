"""What one seed decides: settings, fleet, weather and incidents, as values that can be shrunk."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from msgspec import structs

from gradientmail.config import RunSettings
from gradientmail.simulation.checks import least_of
from gradientmail.simulation.loop import rng_of
from gradientmail.simulation.process import ClockError
from gradientmail.simulation.weather import Fault, Spell, Weather

OUTAGE_S = 600.0
SHORTEST_LEASE_S, SHORTEST_PRESENCE_S = 12.0, 5.0
"""Where progress is asked, by the true time of the fastest clock: requests must be short beside
them (docs/promises.md). Safety stands without."""
STORM_RATE = 0.8
RATES = (
    *(Fault.REFUSED, Fault.LOST, Fault.LATE, Fault.TWICE, Fault.REPEATED, Fault.SLOW),
    *(Fault.CONFLICT, Fault.HIDDEN),
)
VIEWS = (Fault.STALE, Fault.PAGE)
DAMAGE = (Fault.TRUNCATED, Fault.FLIPPED)

Role = Literal["closer", "learner", "hostile"]
Lease = Literal["kept", "no-lease", "wrong-clock"]
KEPT: Final[tuple[Lease]] = ("kept",)
LEASES: Final[tuple[Lease, ...]] = (*KEPT * 7, "no-lease", "wrong-clock")
Befalls = Literal["kill", "pause", "spoil", "foreign", "delete", "forge", "deface", "restore"]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One process slot of the fleet.

    Attributes:
        slot: Unique name of the slot.
        name: What it calls itself: twins share one.
        joins_s, leaves_s: True time; it leaves in good order.
        keeps_state: A learner has a state directory.
        compute_s: The longest that encoding or aggregating takes it.
        step_s: A learner's inner step.
        tags: What a learner says of itself.
    """

    role: Role
    slot: str
    name: str
    joins_s: float = 0.0
    leaves_s: float = float("inf")
    clock: ClockError = field(default_factory=ClockError)
    keeps_state: bool = False
    compute_s: float = 0.1
    step_s: float = 1.0
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something that befalls a slot, or the store (an operator's doing).

    Attributes:
        seconds: How long it is paused, or until a killed one is started again.
    """

    at_s: float
    kind: Befalls
    slot: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A world to run.

    Attributes:
        duration_s: True time after which it ends.
        calm_s: True time after which nothing more goes wrong; within ``duration_s`` in a scenario
            that asks for progress.
        lease: The lease only saves work: nothing may break without one, or by wrong clocks.
    """

    seed: int
    settings: RunSettings
    fleet: tuple[Member, ...]
    weather: Weather
    incidents: tuple[Incident, ...] = ()
    duration_s: float
    calm_s: float = float("inf")
    retry_deadline_s: float = 120.0
    lease: Lease = "kept"


ALGORITHMS: Final[Sequence[Mapping[str, Any]]] = (
    *[{}] * 10,
    {"outer": "adam"},
    {"outer": "yogi", "outer_schedule": "cosine", "outer_schedule_settings": {"versions": 5}},
    {"outer": "delayed-nesterov", "outer_settings": {"arrivals": 2, "early": 0.25}},
    {"outer": "torch.optim.NAdam", "outer_lr": 0.01},
    {"weights": "tokens-by-staleness", "local_steps": "dynamic"},
    {"merge": "norm-clipped-mean", "weights": "tokens-power", "outer_clip_norm": 0.1},
    {"merge": "trimmed-mean", "merge_settings": {"trim": 0}},
    {"alignment": "eager", "mixing": 0.3, "error_feedback": True},
    {"guard": "suppress", "guard_settings": {"least_cosine": 0.5}},
    {"guard": "damp", "guard_settings": {"most_divergence": 0.01}},
    {"modules": {"weights.0": {"exchange": "nobody"}}},
)
"""What some worlds have of their own, beside what is drawn for each."""

TAG = "gpu"
BROAD: Final[Mapping[str, Sequence[Mapping[str, Any]]]] = {
    "robust": (
        *[{}] * 8,
        {"merge": "coordinate-median", "merge_settings": {}},
        {"merge": "trimmed-mean", "merge_settings": {"trim": 1}},
    ),
    "coarse": (
        *[{}] * 8,
        {"uplink": "I2"},
        {"uplink": "SIGN"},
        {"uplink": "SPARSE"},
        {"uplink": "SPARSE", "downlink": "SIGN", "published": "F32"},
    ),
    "selection": (
        *[{}] * 6,
        {"selection": "random", "selection_settings": {"fraction": 0.5}},
        {"selection": "tags", "selection_settings": {"tags": [TAG]}},
    ),
}
"""More of that, for worlds that press on no single point."""

FROM_ANYONE: Final[Mapping[str, Any]] = {
    "merge": "weighted-mean",
    "merge_settings": {},
    "selection": "all",
    "selection_settings": {},
}
"""Under which a round goes on with whatever it gets."""


def scenario_of(seed: int, *, liveness: bool = False, broad: bool = False) -> Scenario:
    """Return the world of ``seed``.

    Args:
        seed: Names it.
        liveness: It becomes calm at last.
        broad: It may take contributions from a few learners only, or never from too few, or in
            coarse codecs: each world of a kind that presses on one point would press less.
    """
    rng = rng_of("scenario", seed)
    own = {"algorithm": ALGORITHMS, **(BROAD if broad else {})}
    settings = _with_own(seed, own, _settings(rng))
    outage = rng.random() < 0.03
    polls = rng.uniform(100.0, 200.0) if rng.random() < 0.05 else rng.uniform(20.0, 60.0)
    busy_s = polls * settings.poll_s + OUTAGE_S * outage
    lease = rng.choice(LEASES)
    learners = _learners(rng, settings, busy_s)
    fleet = (*_closers(rng, settings, busy_s, 1 if lease == "kept" else 2), *learners)
    if liveness:
        fastest = max(member.clock.rate for member in fleet if member.role == "closer")
        settings = structs.replace(
            settings,
            lease_s=max(settings.lease_s, SHORTEST_LEASE_S * fastest),
            presence_s=max(settings.presence_s, SHORTEST_PRESENCE_S * fastest),
        )
    if any(member.role == "hostile" for member in learners):
        settings = _despite_hostile(settings, liveness=liveness)
    weather = Weather(
        rates=_rates(rng),
        spells=_spells(rng, busy_s, fleet, outage=outage),
        calm_after_s=busy_s if liveness else float("inf"),
    )
    return Scenario(
        seed=seed,
        settings=settings,
        fleet=fleet,
        weather=weather,
        incidents=_incidents(rng, settings, busy_s, fleet),
        duration_s=busy_s,
        calm_s=busy_s if liveness else float("inf"),
        retry_deadline_s=rng.choice([20.0, 60.0, 120.0]),
        lease=lease,
    )


def _settings(rng: random.Random) -> RunSettings:
    fragments = rng.randint(1, 3)
    poll_s = rng.choice([1.0, 2.0, 4.0])
    alignment = rng.choice(["overwrite", "blend", "carry", "adaptive"])
    downlink = rng.choice([None, None, "I8", "I4", "BF16"])
    sync_every = fragments + rng.randint(0, 4)
    chosen: dict[str, Any] = {
        "sync_every": sync_every,
        "fragments": fragments,
        "in_flight": rng.randint(1, fragments),
        "overlap_steps": rng.choice([None, 0, rng.randint(1, sync_every)]),
        "quorum": rng.randint(1, 3),
        "grace_s": rng.choice([None, 0.0, 5.0, 30.0]),
        "max_staleness": rng.randint(0, 2),
        "alignment": alignment,
        "mixing": 0.5 if alignment == "blend" else 0.0,
        "merge": rng.choice(["weighted-mean", "radial-directional-mean"]),
        "weights": rng.choice(["tokens2-per-step", "tokens", "uniform"]),
        "uplink": rng.choice(["F32", "F16", "BF16", "F8_E4M3", "I8", "I4", "NF4", "F4"]),
        "downlink": downlink,
        "published": "F32" if downlink else rng.choice(["F32", "F32", "BF16", "I8"]),
        "error_feedback": rng.random() < 0.7,
        "buffers": rng.choice(["averaged", "local"]),
        "outer": rng.choice(["sgd", "nesterov"]),
        "clip_ratio": rng.choice([None, 1.5, 10.0]),
        "flush_on_close": rng.random() < 0.5,
        "poll_s": poll_s,
        "lease_s": max(SHORTEST_LEASE_S, poll_s * rng.uniform(4.0, 12.0)),
        "presence_s": poll_s * rng.uniform(5.0, 15.0),
        "keep_versions": rng.randint(1, 4),
    }
    return RunSettings(**chosen)


def _with_own(
    seed: int, own: Mapping[str, Sequence[Mapping[str, Any]]], settings: RunSettings
) -> RunSettings:
    """Return ``settings`` with what this world has of its own, each drawn by itself."""
    for name, choices in own.items():
        settings = structs.replace(settings, **rng_of(name, seed).choice(choices))
    return structs.replace(settings, quorum=max(settings.quorum, _least(settings)))


def _least(settings: RunSettings) -> int:
    return least_of(structs.asdict(settings))


def _despite_hostile(settings: RunSettings, *, liveness: bool) -> RunSettings:
    """One that says it is there and never posts is waited for where everyone is, or is asked."""
    if liveness and (_least(settings) > 1 or settings.selection != "all"):
        settings = structs.replace(settings, **FROM_ANYONE)
    grace_s = 5.0 if settings.grace_s is None else settings.grace_s
    return structs.replace(settings, quorum=_least(settings), grace_s=grace_s)


def _clock(rng: random.Random) -> ClockError:
    return ClockError(
        rate=rng.choice([1.0, 1.0, 4.0 ** rng.uniform(-1.0, 1.0)]),
        origin_s=rng.uniform(0.0, 1e6),
        wall_s=rng.choice([0.0, rng.uniform(-1e6, 1e6)]),
    )


def _rival_clock(rng: random.Random, index: int) -> ClockError:
    """Return clocks by which a lease always seems to have run out: it saves nothing then."""
    return replace(_clock(rng), rate=0.25 if index == 0 else 4.0)


def _closers(rng: random.Random, settings: RunSettings, busy_s: float, least: int) -> list[Member]:
    found = []
    rivalry = rng.random() < 0.2
    for index in range(3 if rivalry else max(least, rng.choice([1, 1, 2, 2, 3]))):
        leaves_s = rng.choice([float("inf"), rng.uniform(0.3, 1.0) * busy_s])
        found.append(
            Member(
                role="closer",
                slot=f"closer-{index}",
                name=f"closer-{index}",
                joins_s=rng.uniform(0.0, settings.lease_s) * (index > 0),
                leaves_s=leaves_s if index > 0 else float("inf"),
                clock=_rival_clock(rng, index) if rivalry else _clock(rng),
                compute_s=rng.choice([0.1, 3.0, 0.5 * settings.lease_s]),
            )
        )
    return found


def _learners(rng: random.Random, settings: RunSettings, busy_s: float) -> list[Member]:
    found = []
    twins = rng.random() < 0.3
    round_s = settings.poll_s * rng.uniform(2.0, 10.0)
    for index in range(max(_least(settings), rng.choice([1, 1, 2, 2, 3, 4]))):
        number = 0 if twins and index == 1 else index
        leaves_s = rng.choice([float("inf"), float("inf"), rng.uniform(0.3, 1.0) * busy_s])
        found.append(
            Member(
                role="learner",
                slot=f"learner-{index}",
                name=f"learner-{number}",
                joins_s=rng.choice([0.0, rng.uniform(0.0, 0.5) * busy_s]) * (index > 0),
                leaves_s=leaves_s if index > 0 else float("inf"),
                clock=_clock(rng),
                keeps_state=rng.random() < 0.5,
                compute_s=rng.choice([0.1, 0.1, 5.0]),
                step_s=round_s / settings.sync_every * 4.0 ** rng.uniform(-0.5, 0.5),
                tags=() if number % 2 else (TAG,),
            )
        )
    if rng.random() < 0.2:
        pause_s = settings.poll_s * rng.uniform(4.0, 20.0)
        found.append(Member(role="hostile", slot="hostile", name="eve", step_s=pause_s))
    return found


def _rates(rng: random.Random) -> dict[Fault, float]:
    severity = rng.choice([0.0, 0.003, 0.01, 0.03])
    rates = {fault: severity * rng.uniform(0.2, 1.0) for fault in RATES if rng.random() < 0.7}
    if Fault.CONFLICT in rates:
        rates[Fault.CONFLICT] *= 10  # it meets creates only, and they are rare
    views, damage = rng.choice([0.0, 0.02, 0.2]), rng.choice([0.0, 0.0, 0.003, 0.03])
    seen = {fault: views * rng.uniform(0.2, 1.0) for fault in VIEWS}
    return rates | seen | {fault: damage * rng.uniform(0.2, 1.0) for fault in DAMAGE}


def _spells(
    rng: random.Random, busy_s: float, fleet: tuple[Member, ...], *, outage: bool
) -> tuple[Spell, ...]:
    lengths_s = {Fault.STORM: 120.0, Fault.FULL: 150.0}
    spells = []
    for fault, longest_s in lengths_s.items():
        if rng.random() < 0.2:
            start_s = rng.uniform(0.0, busy_s)
            whom = rng.choice(["", rng.choice(fleet).slot])
            rate = STORM_RATE if fault is Fault.STORM else 1.0
            end_s = start_s + rng.uniform(10.0, longest_s)
            spells.append(
                Spell(fault=fault, start_s=start_s, end_s=end_s, rate=rate, process=whom)
            )
    if outage:
        start_s = rng.uniform(0.1, 0.9) * (busy_s - OUTAGE_S)
        spells.append(Spell(fault=Fault.OUTAGE, start_s=start_s, end_s=start_s + OUTAGE_S))
    return tuple(spells)


def _incidents(
    rng: random.Random, settings: RunSettings, busy_s: float, fleet: tuple[Member, ...]
) -> tuple[Incident, ...]:
    found = []
    for member in fleet:
        for _ in range(rng.choice([0, 0, 1, 1, 3])):
            kind: Befalls = rng.choice(["kill", "kill", "pause", "spoil"])
            sign_s = rng.choice([settings.lease_s, settings.presence_s])
            pause_s = sign_s * rng.uniform(0.2, 3.0)
            again_s = rng.choice([0.0, rng.uniform(0.0, 30.0) * settings.poll_s])
            found.append(
                Incident(
                    at_s=rng.uniform(0.0, busy_s),
                    kind=kind,
                    slot=member.slot,
                    seconds=pause_s if kind == "pause" else again_s,
                )
            )
    if rng.random() < 0.15:
        found += _kill_loop(rng, settings, busy_s, rng.choice(fleet).slot)
    for _ in range(rng.choice([0, 0, 3, 10])):
        operator: Befalls = rng.choice(["foreign", "delete", "forge", "deface"])
        found.append(Incident(at_s=rng.uniform(0.0, busy_s), kind=operator))
    return tuple(sorted(found, key=lambda one: one.at_s))


def _kill_loop(
    rng: random.Random, settings: RunSettings, busy_s: float, slot: str
) -> list[Incident]:
    """Kill a process again and again soon after its start."""
    start_s, every_s = rng.uniform(0.0, busy_s), settings.poll_s * rng.uniform(0.5, 3.0)
    times = (start_s + every_s * turn for turn in range(rng.randint(4, 12)))
    return [Incident(at_s=at, kind="kill", slot=slot) for at in times if at < busy_s]
