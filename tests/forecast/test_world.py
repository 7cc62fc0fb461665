"""Forecasts that can be worked out, what must rise with what, and the real code beside."""

import logging
from collections import Counter
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.forecast.fleet import Learners, Model, Prices, StoreSpec
from gradientmail.forecast.sizes import Sizes
from gradientmail.forecast.trace import Doing, Trace
from gradientmail.forecast.world import World, member_names
from gradientmail.learner.presence import BEATS_PER_PRESENCE
from gradientmail.simulation.loop import rng_of
from gradientmail.simulation.scenario import Member, Scenario
from gradientmail.simulation.weather import Weather
from gradientmail.simulation.world import run_world
from tests.forecast.fleets import TILE, decoupled, diloco, fleet_with, look_ahead, one

HOUR_S = 3600.0


def sizes_with(run: RunSettings) -> Sizes:
    return World(fleet_with(hours=1.0), run, Trace()).ground.sizes


# -- one learner, one fragment: worked out by hand ------------------------------------------


def test_one_learner_posts_every_h_steps_and_moves_these_bytes() -> None:
    run = diloco(poll_s=0.01)
    found = look_ahead(fleet_with(hours=1.0), run)
    (learner,), sizes = found.learners, sizes_with(run)
    (fragment,) = sizes.fragments
    # A round is ten steps, and at most some polls of 0.01 s until it is found and heard of.
    assert 10.0 <= (found.round_s or 0.0) <= 10.05
    assert found.rounds == pytest.approx(HOUR_S / (found.round_s or 1.0), abs=1)
    beats = learner.traffic.puts - learner.posted
    assert beats == pytest.approx(HOUR_S / (run.presence_s / BEATS_PER_PRESENCE), abs=1)
    assert learner.posted == pytest.approx(found.rounds, abs=1)
    assert learner.traffic.up_bytes == (
        learner.posted * fragment.contribution + beats * sizes.presence
    )
    assert fragment.contribution == 4096 + 4 * TILE
    assert found.staleness == {0: found.rounds}
    assert learner.utilisation + learner.waited == pytest.approx(1.0, abs=1e-6)
    assert learner.waited < 0.005


def test_an_upload_takes_its_bytes_over_its_line_and_training_waits_for_it() -> None:
    contribution = sizes_with(diloco()).fragments[0].contribution
    slow = one(up_mbit_s=contribution * 8 / 1e6 / 5.0)  # five seconds
    found = look_ahead(fleet_with(slow, hours=1.0), diloco(poll_s=0.01))
    assert 15.0 <= (found.round_s or 0.0) <= 15.1
    assert found.learners[0].waited == pytest.approx(5 / 15, abs=0.01)


def test_training_that_overlaps_the_upload_waits_for_nothing() -> None:
    contribution = sizes_with(diloco()).fragments[0].contribution
    slow = one(up_mbit_s=contribution * 8 / 1e6 / 5.0)
    run = diloco(poll_s=0.01, overlap_steps=6, alignment="overwrite")
    (learner,) = look_ahead(fleet_with(slow, hours=1.0), run).learners
    assert learner.waited == 0.0
    assert learner.stale_steps == pytest.approx(6.0, abs=0.1)
    # What it trained meanwhile is overwritten: 6 steps of each 10.
    assert learner.wasted == pytest.approx(6 / 10, abs=0.01)
    kept = diloco(poll_s=0.01, overlap_steps=6, alignment="carry")
    assert look_ahead(fleet_with(slow, hours=1.0), kept).learners[0].wasted == 0.0


def test_everybody_waits_for_the_slowest_and_nobody_where_no_one_waits() -> None:
    fleet = fleet_with(one("fast"), one("slow", step_s=4.0), hours=2.0)
    fast, slow = look_ahead(fleet, diloco(poll_s=0.1)).learners
    assert fast.utilisation == pytest.approx(0.25, abs=0.01)
    assert slow.utilisation == pytest.approx(1.0, abs=0.02)
    found = look_ahead(fleet, decoupled(poll_s=0.5))
    assert found.utilisation > 0.98
    assert found.contributions > 1.9


def test_too_short_a_grace_window_shows_as_work_posted_too_late() -> None:
    fleet = fleet_with(one("fast"), one("slow", step_s=7.0), hours=2.0)
    short, enough = (look_ahead(fleet, decoupled(grace_s=s)) for s in (0.5, 30.0))
    assert short.carried > 0.05
    assert enough.carried < 0.01 < short.utilisation < enough.utilisation


def test_an_interruption_takes_its_time_and_what_was_not_saved() -> None:
    learner = one(interruptions_per_day=480, interruption_s=60.0, save_every_s=20.0)
    found = look_ahead(fleet_with(learner, one("other"), hours=12.0), decoupled())
    gone = found.learners[0]
    assert gone.interruptions == pytest.approx(12 * 20 * 0.75, rel=0.2)
    assert gone.away == pytest.approx(gone.interruptions * 60.0 / (12 * HOUR_S), rel=0.05)
    assert 0.0 < gone.wasted < gone.interruptions * 20.0 / (12 * HOUR_S)
    assert found.learners[1].utilisation > 0.99  # the other one never noticed


def test_a_learner_without_state_loses_what_it_had_not_posted() -> None:
    def wasted(*, keeps_state: bool) -> float:
        learner = one(interruptions_per_day=240, interruption_s=5.0, keeps_state=keeps_state)
        fleet = fleet_with(learner, one("other"), hours=12.0)
        return look_ahead(fleet, decoupled(sync_every=200)).learners[0].wasted

    assert wasted(keeps_state=False) > 3 * wasted(keeps_state=True) > 0.0


def test_rounds_wait_for_a_lost_learner_until_it_counts_as_silent() -> None:
    def waited_s(per_day: float, seed: int) -> tuple[float, int]:
        lost = one("lost", interruptions_per_day=per_day, interruption_s=900.0)
        fleet = fleet_with(lost, one("other"), hours=12.0, seed=seed)
        found = look_ahead(fleet, diloco(poll_s=0.2))
        return found.learners[1].waited * 12 * HOUR_S, found.learners[0].interruptions

    pairs = [(waited_s(0.0, seed), waited_s(24.0, seed)) for seed in range(4)]
    more_s = sum(waited - usual_s for (usual_s, _), (waited, _) in pairs)
    times = sum(times for _, (_, times) in pairs)
    assert 45.0 < more_s / times < 90.0  # presence_s, and a look or two


def test_who_comes_and_goes_is_there_in_between() -> None:
    visitor = one("visitor", joins_h=1.0, leaves_h=3.0, price_per_hour=2.0)
    found = look_ahead(fleet_with(one("host"), visitor, hours=6.0), diloco())
    by_name = {learner.name: learner for learner in found.learners}
    assert by_name["visitor"].there_h == pytest.approx(2.0, abs=0.01)
    assert found.money.learners == pytest.approx(4.0, abs=0.02)
    assert by_name["host"].utilisation > 0.9


def test_a_killed_closer_costs_a_lease_where_another_stands_by() -> None:
    def absent(count: int) -> float:
        closer = {"count": count, "interruptions_per_day": 48, "interruption_s": 300.0}
        found = look_ahead(fleet_with(hours=24.0, closer=closer), decoupled())
        return found.closer.absent * 24 * HOUR_S / (found.closer.terms - 1)

    assert absent(2) == pytest.approx(30.0 - 6.0, abs=1.0)  # lease_s, less the age of a beat
    assert absent(1) == pytest.approx(330.0, abs=2.0)


def test_money_is_the_price_of_each_thing() -> None:
    free = fleet_with(one(price_per_hour=3.0), hours=10.0, closer={"price_per_hour": 0.5})
    prices = Prices(put_per_million=1e6, get_per_million=1e5)
    paid = msgspec.structs.replace(free, store=StoreSpec(latency_s=0.0, prices=prices))
    found = look_ahead(paid, decoupled())
    traffic = [found.closer.traffic, found.learners[0].traffic]
    puts, gets = (sum(getattr(one, field) for one in traffic) for field in ("puts", "gets"))
    assert found.money.learners == pytest.approx(30.0)
    assert found.money.closers == pytest.approx(5.0)
    assert found.money.requests_and_egress == pytest.approx(puts + 0.1 * gets)
    assert found.money.storage == 0.0


def test_storage_is_swept_to_the_versions_that_are_kept() -> None:
    run = decoupled(keep_versions=3)
    short, long = (look_ahead(fleet_with(hours=h), run).stored_peak_bytes for h in (1.0, 4.0))
    records = 4 * HOUR_S / 20 * sizes_with(run).commit_of(1, 1)
    assert long - short < records
    kept = look_ahead(fleet_with(hours=4.0), decoupled(retain=True)).stored_bytes
    assert kept > 20 * long


# -- for every seed ------------------------------------------------------------------------


def some_fleet(seed: int, **fields: Any) -> Any:
    spot = one("spot", count=3, step_spread=0.3, interruptions_per_day=50, interruption_s=60.0)
    return fleet_with(spot, one("desk", step_s=2.0), seed=seed, **{"hours": 2.0, **fields})


def test_the_same_seed_gives_the_same_forecast_and_another_one_another() -> None:
    first, again, other = (look_ahead(some_fleet(seed), decoupled()) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_interruptions_do_not_depend_on_the_settings() -> None:
    by_settings = (look_ahead(some_fleet(1, rounds=None), run) for run in (diloco(), decoupled()))
    first, second = ([one.interruptions for one in found.learners] for found in by_settings)
    assert sum(abs(a - b) for a, b in zip(first, second, strict=True)) <= 2


@given(
    seed=st.integers(0, 100),
    mbit_s=st.floats(0.02, 2.0),
    factor=st.floats(1.5, 20.0),
    waits=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_more_bandwidth_never_lowers_utilisation(
    seed: int, mbit_s: float, factor: float, *, waits: bool
) -> None:
    run = diloco(poll_s=0.2) if waits else decoupled(poll_s=0.2)

    def utilisation(line: float) -> float:
        pair = one("pair", count=2, step_spread=0.2, up_mbit_s=line, down_mbit_s=line)
        return look_ahead(fleet_with(pair, hours=0.25, seed=seed), run).utilisation

    assert utilisation(mbit_s * factor) >= utilisation(mbit_s) - 0.02


@given(seed=st.integers(0, 100), faster=st.floats(1.2, 5.0))
@settings(max_examples=10, deadline=None)
def test_faster_steps_never_mean_fewer_rounds(seed: int, faster: float) -> None:
    def rounds(step_s: float) -> int:
        return look_ahead(fleet_with(one(step_s=step_s), hours=0.25, seed=seed), diloco()).rounds

    assert rounds(1.0 / faster) >= rounds(1.0)


@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_shares_of_the_time_add_up_and_nothing_is_negative(seed: int) -> None:
    found = look_ahead(some_fleet(seed), diloco(overlap_steps=3))
    for part in (found, *found.learners):
        shares = [part.utilisation, part.carried, part.wasted, part.waited]
        shares += [part.joining, part.away]
        assert sum(shares) == pytest.approx(1.0, abs=1e-6)
        assert min(shares) >= 0.0


def test_a_number_of_rounds_ends_it() -> None:
    assert look_ahead(fleet_with(rounds=7), diloco()).rounds == 7
    assert look_ahead(fleet_with(hours=100.0), diloco(stop_after_rounds=5)).rounds == 5


def test_what_is_shown_lies_side_by_side_without_holes() -> None:
    trace = Trace(shown=frozenset({"desk"}), until_s=HOUR_S)
    look_ahead(some_fleet(3), diloco(), trace)
    time = {Doing.TRAINING, Doing.WAITING, Doing.JOINING, Doing.AWAY}
    spans = sorted(span[2:] for span in trace.spans if span.doing in time)
    gaps = [begin - end for (_, end), (begin, _) in pairwise(spans)]
    assert all(abs(gap) < 1e-6 for gap in gaps)


def test_what_is_not_modelled_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"exchange = 'gossip' is not forecast yet"):
        look_ahead(fleet_with(hours=1.0), diloco(exchange="gossip"))


def test_members_of_a_group_are_numbered() -> None:
    assert member_names(Learners(name="a", count=12, step_s=1.0))[-1] == "a-11"


# -- the real code beside it ---------------------------------------------------------------

SIMULATED_S = 1800.0
SEED = 3

AGREED: dict[str, tuple[dict[str, Any], list[float]]] = {
    "all wait": (
        {"sync_every": 30, "overlap_steps": 0, "alignment": "overwrite"},
        [1.0, 1.0, 1.5],
    ),
    "streaming": (
        {"sync_every": 20, "fragments": 2, "overlap_steps": 1, "alignment": "overwrite"},
        [1.0, 2.0],
    ),
    "decoupled": (
        {
            "sync_every": 20,
            "fragments": 2,
            "in_flight": 2,
            "overlap_steps": None,
            "grace_s": 5.0,
            "alignment": "carry",
            "uplink": "I8",
            "downlink": "I8",
        },
        [1.0, 2.0],
    ),
}


def round_trip_s(slot: str) -> float:
    """Return what a request of ``slot`` takes on average in a simulated world: see ``Line``."""
    return 2 * 1.25 * rng_of("line", SEED, slot, 1).uniform(0.005, 0.15)


def simulated(
    run: RunSettings, steps_s: list[float]
) -> tuple[int, dict[str, Counter[str]], Counter[str]]:
    """Run the real code on virtual time; return rounds, and operations and bytes by process."""
    logging.disable(logging.CRITICAL)
    try:
        members = [
            Member(role="learner", slot=f"l{i}", name=f"l{i}", step_s=step_s, joins_s=0.5)
            for i, step_s in enumerate(steps_s)
        ]
        outcome = run_world(
            Scenario(
                seed=SEED,
                settings=run,
                fleet=(Member(role="closer", slot="closer", name="closer"), *members),
                weather=Weather(),
                duration_s=SIMULATED_S,
            )
        )
    finally:
        logging.disable(logging.NOTSET)
    assert not outcome.failures
    operations: dict[str, Counter[str]] = {}
    for event in outcome.events:
        operations.setdefault(event.process.partition("#")[0], Counter())[event.what] += 1
    up_bytes: Counter[str] = Counter()
    for change in outcome.mutations:
        up_bytes[change.process.partition("#")[0]] += len(change.data or b"")
    commits = [one for one in outcome.mutations if one.key.startswith("commits/")]
    return len(commits), operations, up_bytes


@pytest.mark.parametrize("name", AGREED)
def test_a_forecast_agrees_with_the_real_code(name: str) -> None:
    values, steps_s = AGREED[name]
    run = RunSettings(presence_s=60.0, **values)
    rounds, operations, up_bytes = simulated(run, steps_s)
    fleet = fleet_with(
        *(one(f"l{i}", step_s=step_s) for i, step_s in enumerate(steps_s)),
        # The simulated model: a tile of parameters in each fragment, and one of buffers.
        model=Model(parameters=TILE * (run.fragments + 1), blocks=run.fragments + 1),
        closer={"numbers_per_s": 5e5},
        latency_s=round_trip_s("closer"),
        hours=SIMULATED_S / HOUR_S,
    )
    found = look_ahead(fleet, run)
    assert found.rounds == pytest.approx(rounds, abs=1 + 0.05 * rounds)
    processes = {
        "closer": found.closer.traffic,
        **{one.name: one.traffic for one in found.learners},
    }
    for process, traffic in processes.items():
        real = operations[process]
        assert traffic.puts == pytest.approx(real["put"] + real["create"], rel=0.08)
        assert traffic.up_bytes == pytest.approx(up_bytes[process], rel=0.1)
        assert traffic.lists == pytest.approx(real["list"], rel=0.1)
        assert traffic.gets == pytest.approx(real["read"] + real["fetch"], rel=0.2)
