"""What the simulator found first, each as the smallest world that shows it."""

import pytest

from gradientmail.config import RunSettings
from gradientmail.simulation.checking import judged
from gradientmail.simulation.scenario import Incident, Member, Scenario
from gradientmail.simulation.weather import Fault, Spell, Weather

CLOSER = Member(role="closer", slot="closer", name="closer")
LEARNER = Member(role="learner", slot="learner", name="learner", keeps_state=True, step_s=2.0)


def a_world(**changes):
    settings = RunSettings(sync_every=3, fragments=2, overlap_steps=0, lease_s=10.0)
    world = {
        "seed": 0,
        "settings": settings,
        "fleet": (CLOSER, LEARNER),
        "weather": Weather(),
        "duration_s": 120.0,
        "calm_s": 120.0,
    }
    return Scenario(**world | changes)


@pytest.mark.parametrize("fault", [Fault.FULL, Fault.OUTAGE])
def test_nobody_dies_of_a_store_that_takes_nothing_for_a_while(fault, quiet):
    """A beat and a presence that met a full disk once ended their processes."""
    spell = Spell(fault=fault, start_s=30.0, end_s=90.0)
    verdict = judged(a_world(weather=Weather(spells=(spell,))))
    assert not verdict.wrong
    assert verdict.seen[f"fault {fault}"]


def test_all_processes_killed_at_once_go_on_from_the_same_bytes(quiet):
    deaths = [
        Incident(at_s=50.0, kind="kill", slot=member.slot, seconds=60.0)
        for member in (CLOSER, LEARNER)
    ]
    verdict = judged(a_world(incidents=tuple(deaths)))
    assert not verdict.wrong
    assert verdict.seen["a learner restarted from its state"]


@pytest.mark.parametrize("fault", [Fault.TRUNCATED, Fault.FLIPPED])
def test_what_was_damaged_on_its_way_is_read_again(fault, quiet):
    """A cut manifest ended a learner once, a commit with a flipped bit a closer."""
    verdict = judged(a_world(weather=Weather(rates={fault: 0.1})))
    assert not verdict.wrong
    assert verdict.seen[f"fault {fault}"] > 20


@pytest.mark.parametrize("lease", ["no-lease", "wrong-clock"])
def test_two_closers_without_a_lease_cost_work_and_nothing_else(lease, quiet):
    rival = Member(role="closer", slot="rival", name="rival")
    assert not judged(a_world(fleet=(CLOSER, rival, LEARNER), lease=lease)).wrong


def test_a_learner_that_diverged_while_its_work_was_on_its_way_counts_again_later(quiet):
    """Seed 20313: eager alignment put NaN into the residual, and nothing was posted again."""
    spoilt = tuple(Incident(at_s=at, kind="spoil", slot="learner") for at in range(20, 50, 3))
    settings = RunSettings(
        sync_every=3,
        fragments=1,
        overlap_steps=3,
        alignment="eager",
        mixing=0.3,
        uplink="I8",
        lease_s=12.0,
    )
    verdict = judged(a_world(settings=settings, incidents=spoilt))
    assert not verdict.wrong


def test_a_head_that_was_spoilt_leaves_no_round_unasked(quiet):
    """Seed 247: one that stepped down wrote its head last, and nobody was asked for a round."""
    spoilt = tuple(Incident(at_s=60.0 + at / 5, kind="deface") for at in range(300))
    settings = RunSettings(
        sync_every=3,
        fragments=1,
        lease_s=12.0,
        selection="random",
        selection_settings={"fraction": 0.5},
    )
    assert not judged(a_world(settings=settings, incidents=spoilt)).wrong
