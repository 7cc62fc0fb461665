"""What learners receive is rounded; the master behind it is not, so rounding never adds up."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.algorithms.aggregation import Aggregation
from gradientmail.algorithms.aggregator import (
    MASTER,
    PARAMS,
    UPDATE,
    Aggregator,
    FragmentState,
)
from gradientmail.algorithms.merge import WeightedMean
from gradientmail.algorithms.weights import Uniform
from gradientmail.codecs.layout import TILE, layout
from gradientmail.codecs.precision import Precision
from tests.rounds.small import DILOCO, MEAN, MOMENTUM, Recorded, contribution, posted, state_of


@settings(max_examples=10, deadline=None)
@given(
    precision=st.sampled_from([Precision.I8, Precision.F8_E4M3, Precision.NF4, Precision.F4]),
    seed=st.integers(0, 1000),
)
def test_published_parameters_are_the_old_ones_plus_the_update_bit_for_bit(
    precision: Precision, seed: int
) -> None:
    """And the master keeps what the update's rounding leaves, so it never adds up."""
    fragment = layout([("w", TILE)], [("running_mean", 10)])
    rule = Aggregator(merge=WeightedMean(), weights=Uniform(), outer=DILOCO)
    generator = torch.Generator().manual_seed(seed)
    precisions = dict.fromkeys([PARAMS, MASTER, MOMENTUM], Precision.F32) | {UPDATE: precision}
    learner = torch.randn(fragment.numel, generator=generator)
    state = FragmentState(layout=fragment, version=0, sections={PARAMS: learner})
    exact = state
    for version in range(1, 13):
        delta = posted(fragment, torch.randn(fragment.numel, generator=generator) * 1e-2)
        sink = Recorded(fragment, precisions)
        Aggregation(rule, fragment, [delta.counters], [delta]).run(state, sink)
        learner = learner + sink.vectors[UPDATE]
        assert torch.equal(learner, sink.vectors[PARAMS])
        state = sink.state(version)
        exact = rule.close_round(exact, [delta]).state
        assert torch.equal(sink.vectors[MASTER], exact.sections[PARAMS]), "the master is exact"
        largest = sink.vectors[UPDATE].abs().max()
        assert (learner - sink.vectors[MASTER]).abs().max() <= largest / 2, "bounded in any round"


@pytest.mark.parametrize(("master", "end"), [(True, 2.0), (False, 1.0)])
def test_a_float32_master_takes_a_thousand_steps_of_a_thousandth(
    *, master: bool, end: float
) -> None:
    """Published in bf16, whose numbers above 1 are 1/128 apart: without a master it stays at 1."""
    kept = {MASTER: Precision.F32} if master else {}
    fragment = layout([("w", 1)])
    delta = contribution(fragment, {"w": [-1e-3]})
    state = state_of(fragment, params={"w": [1.0]})
    for version in range(1, 1001):
        sink = Recorded(fragment, {PARAMS: Precision.BF16, **kept})
        Aggregation(MEAN, fragment, [delta.counters], [delta]).run(state, sink)
        state = sink.state(version)
    assert state.sections[PARAMS][0].item() == end
    if master:
        assert state.sections[MASTER][0].item() == pytest.approx(2.0, abs=1e-4)
