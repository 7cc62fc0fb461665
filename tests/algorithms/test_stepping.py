"""The outer step inside a round: clipped, scaled by its schedule, and counted."""

from dataclasses import replace

import pytest
import torch

from gradientmail.algorithms.aggregator import PARAMS, Aggregator, FragmentState
from gradientmail.algorithms.merge import WeightedMean
from gradientmail.algorithms.outer import DelayedNesterov, Sgd, Yogi
from gradientmail.algorithms.schedules import Constant, Steps
from gradientmail.algorithms.weights import Tokens, TokensByStaleness
from gradientmail.codecs.layout import layout
from tests.rounds.small import contribution, state_of, tensors

W = layout([("w", 2)], [("mean", 1)])
RULE = Aggregator(merge=WeightedMean(), weights=Tokens(), outer=Sgd(1.0))
START = state_of(W, params={"w": [0.0, 0.0], "mean": [0.0]})
MOVE = contribution(W, {"w": [3.0, 4.0], "mean": [-100.0]})


def moved(rule: Aggregator, state: FragmentState = START) -> list[float]:
    after = rule.close_round(state, [MOVE]).state.sections[PARAMS]
    return [-value for value in tensors(W, after)["w"]]


def test_a_long_merged_pseudo_gradient_is_cut_to_length_and_its_norm_recorded_whole() -> None:
    rule = replace(RULE, outer_clip_norm=1.0)
    assert moved(rule) == pytest.approx([0.6, 0.8])
    result = rule.close_round(START, [MOVE])
    assert result.outcome.norm == 5.0, "buffers are not in it"
    assert tensors(W, result.state.sections[PARAMS])["mean"] == pytest.approx([100.0])
    assert moved(replace(RULE, outer_clip_norm=5.0)) == [3.0, 4.0]


def test_the_schedule_goes_by_the_version_that_is_made() -> None:
    first = replace(START, version=0)
    assert moved(replace(RULE, schedule=Constant(warmup_versions=3)), first) == [0.75, 1.0]
    late = replace(START, version=4)
    halved = replace(RULE, schedule=Steps(every_versions=2, by=0.5))
    assert moved(halved, late) == pytest.approx([0.75, 1.0])
    assert halved.close_round(late, [MOVE]).outcome.scale == 0.25


def test_steps_are_counted_apart_from_versions() -> None:
    """Delayed Nesterov's momentum step is every second outer step, whatever the version."""
    rule = replace(RULE, outer=DelayedNesterov(lr=1.0, momentum=0.5, arrivals=2))
    once = rule.close_round(replace(START, version=7, outer_steps=0), [MOVE]).state
    assert (once.version, once.outer_steps) == (8, 1)
    assert torch.equal(once.sections["momentum"], torch.zeros(W.numel))
    twice = rule.close_round(replace(once, version=20), [MOVE]).state
    assert tensors(W, twice.sections["momentum"])["w"] == [3.0, 4.0]


def test_state_begins_where_the_optimizer_says() -> None:
    rule = replace(RULE, outer=Yogi(lr=0.1, tau=0.5))
    variance = rule.close_round(START, [MOVE]).state.sections["variance"]
    assert tensors(W, variance)["w"] == pytest.approx([0.25 + 0.09, 0.25 + 0.16])


def test_late_work_counts_less_where_the_weights_say_so() -> None:
    rule = replace(RULE, weights=TokensByStaleness(decay=1.0))
    late = replace(MOVE, counters=replace(MOVE.counters, staleness=3))
    other = contribution(W, {"w": [0.0, 0.0], "mean": [0.0]})
    outcome = rule.close_round(START, [late, other]).outcome
    assert outcome.weights == (0.25, 1.0)
