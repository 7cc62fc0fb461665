from dataclasses import replace

from gradientmail.simulation.checking import judged
from gradientmail.simulation.checks import check_counts
from gradientmail.simulation.kills import TEAM
from gradientmail.simulation.scenario import Member
from gradientmail.simulation.world import run_world

EVE = Member(role="hostile", slot="hostile", name="eve", step_s=1.0)
WORLD = replace(TEAM, fleet=(*TEAM.fleet, EVE), duration_s=60.0, calm_s=60.0)


def test_a_hostile_learner_neither_stops_a_run_nor_gets_bad_mail_into_it(quiet):
    verdict = judged(WORLD)
    assert not verdict.wrong
    assert verdict.seen["hostile mail was rejected"]


def test_bad_mail_that_a_commit_uses_would_be_named(quiet):
    outcome = run_world(TEAM)
    used = next(change.key for change in outcome.mutations if change.key.startswith("mail/"))
    assert not check_counts(outcome.mutations, outcome.steps)
    (complaint,) = check_counts(outcome.mutations, outcome.steps, {used})
    assert used in complaint
