"""Each formula is broken by what it should catch."""

from dataclasses import replace

from gradientmail.simulation.bounds import check_costs, check_storage
from gradientmail.simulation.kills import PAIR
from gradientmail.simulation.world import run_world


def test_a_quiet_world_keeps_within_its_formulas(quiet):
    outcome = run_world(PAIR)
    assert not check_costs(PAIR, outcome.lines, outcome.mutations)
    assert not check_storage(PAIR, outcome.mutations)


def test_more_requests_or_bytes_than_the_formula_allows_are_named(quiet):
    outcome = run_world(PAIR)
    for what, attribute in {
        "requests,": "operations",
        "requests at once": "most_open",
        "bytes on their way": "most_bytes",
    }.items():
        line = next(line for line in outcome.lines if line.process == "closer#1")
        before = getattr(line, attribute)
        setattr(line, attribute, 10**6)
        (complaint,) = check_costs(PAIR, outcome.lines, outcome.mutations)
        assert what in complaint
        setattr(line, attribute, before)


def test_what_a_sweep_leaves_behind_is_named(quiet):
    outcome = run_world(replace(PAIR, duration_s=60.0, calm_s=60.0))
    deletions = [change for change in outcome.mutations if change.operation == "delete"]
    assert deletions
    forgotten = deletions[0].key
    kept = [
        change
        for change in outcome.mutations
        if change.operation != "delete" or change.key != forgotten
    ]
    (complaint,) = check_storage(replace(PAIR, calm_s=0.0), kept)
    assert complaint.startswith(forgotten)
