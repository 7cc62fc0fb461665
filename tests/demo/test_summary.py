import pytest

from gradientmail.demo.summary import summarized
from tests.demo.stories import a_story

PARAMETERS = 1000


def test_bytes_are_set_against_float32_gradients_both_ways_every_step() -> None:
    fast, slow, _ = summarized(a_story(), run="run-1", parameters=PARAMETERS).learners
    assert fast.every_step_bytes == 2 * 4 * PARAMETERS * 100
    assert fast.times_less == pytest.approx(800_000 / 3000)
    assert slow.every_step_bytes == 2 * 4 * PARAMETERS * 20


def test_traffic_is_summed_over_incarnations_and_steps_are_the_last_ones() -> None:
    """A restarted process counts its traffic from zero and its steps from where it was saved."""
    slow = summarized(a_story(), run="run-1", parameters=PARAMETERS).learners[1]
    assert (slow.up_bytes, slow.down_bytes, slow.requests) == (150, 260, 20)
    assert (slow.steps, slow.tokens) == (20, 40)


def test_rounds_are_counted_for_each_learner_and_those_of_nobody_apart() -> None:
    summary = summarized(a_story(), run="run-1", parameters=PARAMETERS)
    assert (summary.rounds, summary.empty) == (5, 1)
    assert [one.rounds for one in summary.learners] == [3, 3, 1]


def test_time_lost_to_a_kill_ends_with_the_first_new_effect() -> None:
    lost = summarized(a_story(), run="run-1", parameters=PARAMETERS).lost
    assert [(one.name, one.at_s, one.lost_s) for one in lost] == [
        ("closer", 12.0, 6.0),
        ("slow-1", 22.0, 18.0),
    ]


def test_losses_are_the_last_of_each_curve() -> None:
    loss = summarized(a_story(), run="run-1", parameters=PARAMETERS).loss
    assert (loss.start, loss.together, loss.alone) == (5.5, 2.0, 2.25)
