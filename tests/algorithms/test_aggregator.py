"""Closing a round in memory: the given values, and what each kind of input does."""

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
import torch

from gradientmail.algorithms.aggregator import PARAMS, Aggregator, Outcome
from gradientmail.algorithms.merge import Merge, RadialDirectionalMean, WeightedMean
from gradientmail.algorithms.weights import Tokens, TokensSquaredPerStep, Uniform
from gradientmail.codecs.blocks import decode_chunk, encode_chunk
from gradientmail.codecs.layout import FragmentLayout, layout
from gradientmail.codecs.precision import Precision
from gradientmail.errors import NonFiniteError
from tests.rounds.small import (
    DILOCO,
    MEAN,
    MOMENTUM,
    RADIAL,
    Values,
    contribution,
    flat,
    state_of,
    tensors,
)


def close(*values: float) -> object:
    return pytest.approx(list(values), abs=1e-6)


W = layout([("w", 2)])


def merged(rule: Aggregator, *deltas: Sequence[float], tokens: Sequence[int] = ()) -> list[float]:
    """Return what is taken from a tensor at zero by a plain outer step: the merged delta."""
    posted = [
        contribution(W, {"w": delta}, tokens=own)
        for delta, own in zip(deltas, tokens or [1] * len(deltas), strict=True)
    ]
    state = rule.close_round(state_of(W, params={"w": [0.0, 0.0]}), posted).state
    return [-value for value in tensors(W, state.sections[PARAMS])["w"]]


# -- the given values -----------------------------------------------------------------------


def test_a_round_is_a_nesterov_step_on_the_mean_and_versions_count() -> None:
    rule = replace(MEAN, outer=msgspec.structs.replace(DILOCO, lr=0.5))
    state = state_of(W, params={"w": [1.0, 2.0]})
    for expected in ([0.525, 1.05], [0.29875, 0.5975]):
        now = tensors(W, state.sections[PARAMS])["w"]
        spread = [[0.25, -1.0], [-0.25, 1.0]]  # two learners around the mean of [.5, 1]
        posted = [contribution(W, {"w": [now[0] - 0.5 + a, now[1] - 1.0 + b]}) for a, b in spread]
        state = rule.close_round(state, posted).state
        assert tensors(W, state.sections[PARAMS])["w"] == close(*expected)
    assert state.version == 5


def test_the_radial_directional_mean_of_orthogonal_deltas_has_norm_2() -> None:
    assert math.hypot(*merged(RADIAL, [2.0, 0.0], [0.0, 2.0])) == pytest.approx(2.0, abs=1e-6)
    assert math.hypot(*merged(MEAN, [2.0, 0.0], [0.0, 2.0])) == pytest.approx(1.4142136, abs=1e-6)


@pytest.mark.parametrize("rule", [MEAN, RADIAL])
def test_one_learner_and_zeros_and_cancelling_directions_are_as_given(rule: Aggregator) -> None:
    odd = [0.1, -1e-30]
    assert merged(rule, odd) == torch.tensor(odd).tolist(), "bit for bit"
    assert merged(rule, [0.0, 0.0], [0.0, 0.0]) == [0.0, 0.0]
    assert merged(rule, [0.3, 0.1], [-0.3, -0.1]) == [0.0, 0.0]
    assert merged(rule, [3.0, 0.0], [-1.0, 0.0]) == close(1.0, 0.0)


@pytest.mark.parametrize(
    ("precision", "values", "mean", "native"),
    [(Precision.BF16, [256, 1, 1], 86.0, 85.5), (Precision.F16, [2048, 1, 1], 683.5, 682.5)],
)
def test_half_precision_is_summed_in_float32(
    precision: Precision, values: list[float], mean: float, native: float
) -> None:
    received = [
        decode_chunk(encode_chunk(flat(W, {"w": [value, 0.0]}), precision), precision)[0].item()
        for value in values
    ]
    found = merged(MEAN, *([value, 0.0] for value in received))[0]
    half = {Precision.BF16: torch.bfloat16, Precision.F16: torch.float16}[precision]
    total = torch.tensor(0.0, dtype=half)
    for value in values:
        total += torch.tensor(value, dtype=half)
    assert (total / 3).item() == native, "what summing in the format itself would give"
    if precision is Precision.BF16:
        assert found == pytest.approx(mean, rel=1e-6)
    else:
        assert found == pytest.approx(2050 / 3, rel=1e-6)
        assert torch.tensor(found).to(half).item() == mean


def test_tokens_weigh() -> None:
    assert merged(MEAN, [3.0, 0.0], [0.0, 3.0], tokens=[2, 1]) == close(2.0, 1.0)
    squared = replace(MEAN, weights=TokensSquaredPerStep())
    assert merged(squared, [5.0, 0.0], [0.0, 5.0], tokens=[2, 1]) == close(4.0, 1.0)
    uniform = replace(MEAN, weights=Uniform())
    assert merged(uniform, [3.0, 0.0], [0.0, 3.0], tokens=[2, 1]) == close(1.5, 1.5)


def test_weights_are_reported_before_normalization() -> None:
    rule = replace(MEAN, weights=TokensSquaredPerStep())
    posted = [
        contribution(W, {"w": [1.0, 0.0]}, tokens=100, steps=10),
        contribution(W, {"w": [1.0, 0.0]}, tokens=30, steps=9),
    ]
    state = state_of(W, params={"w": [0.0, 0.0]})
    assert rule.close_round(state, posted).outcome.weights == (1000.0, 100.0)


# -- absent tensors -------------------------------------------------------------------------

PAIR = layout([("a", 1), ("b", 1)])


@pytest.mark.parametrize("merge", [WeightedMean(), RadialDirectionalMean()])
def test_a_tensor_absent_from_every_contribution_keeps_value_and_momentum(merge: Merge) -> None:
    rule = Aggregator(merge=merge, weights=Tokens(), outer=DILOCO)
    state = state_of(PAIR, params={"a": [1.0], "b": [1.0]}, momentum={"a": [0.5], "b": [0.5]})
    posted = [contribution(PAIR, {"a": [0.0], "b": None})] * 2
    sections = rule.close_round(state, posted).state.sections
    assert tensors(PAIR, sections[PARAMS]) == {"a": close(1 - 0.2835), "b": [1.0]}
    assert tensors(PAIR, sections[MOMENTUM]) == {"a": close(0.45), "b": [0.5]}


def test_a_tensor_that_one_learner_holds_moves_by_that_learner_alone() -> None:
    posted = [
        contribution(PAIR, {"a": [2.0], "b": [3.0]}, tokens=1),
        contribution(PAIR, {"a": [4.0], "b": None}, tokens=3),
    ]
    state = MEAN.close_round(state_of(PAIR, params={"a": [0.0], "b": [0.0]}), posted).state
    assert tensors(PAIR, state.sections[PARAMS]) == {"a": close(-3.5), "b": [-3.0]}


def test_a_round_without_contributions_keeps_every_bit() -> None:
    rule = replace(MEAN, outer=DILOCO)
    state = state_of(PAIR, params={"a": [1.0], "b": [2.0]}, momentum={"a": [0.5], "b": [0.25]})
    result = rule.close_round(state, [])
    assert result.state.version == 4
    assert all(torch.equal(result.state.sections[k], v) for k, v in state.sections.items())
    assert result.outcome == Outcome(weights=(), norms=(), clips=(), cosine=None, norm=0.0)


# -- buffers --------------------------------------------------------------------------------

NORMED = layout([("w", 2)], [("running_mean", 2), ("running_var", 2)])


@pytest.mark.parametrize("merge", [WeightedMean(), RadialDirectionalMean()])
def test_buffers_become_the_plain_mean_of_the_learners_whatever_the_rule(merge: Merge) -> None:
    rule = Aggregator(merge=merge, weights=Tokens(), outer=DILOCO)
    anchor = {"w": [1.0, 1.0], "running_mean": [0.0, 0.0], "running_var": [1.0, 1.0]}
    theirs = [
        {"w": [0.5, 1.0], "running_mean": [4.0, 1.0], "running_var": [11.0, 0.25]},
        {"w": [1.0, 0.5], "running_mean": [-2.0, 0.0], "running_var": [2.0, 0.25]},
    ]
    state = state_of(NORMED, params=anchor)
    for version in range(2):
        now = tensors(NORMED, state.sections[PARAMS])
        posted = [
            contribution(
                NORMED,
                {k: [a - b for a, b in zip(now[k], own[k], strict=True)] for k in own},
                tokens=tokens,
            )
            for own, tokens in zip(theirs, [2, 1], strict=True)
        ]
        state = rule.close_round(state, posted).state
        found = tensors(NORMED, state.sections[PARAMS])
        assert found["running_mean"] == close(2.0, 2 / 3), f"version {version}"
        assert found["running_var"] == close(8.0, 0.25), f"version {version}"
    assert state.sections[MOMENTUM][NORMED.parameters_end :].any().item() is False


def test_statistics_against_an_older_version_do_not_move_them() -> None:
    """Two that saw a variance fall from 1 to .25 agree on .25, also when one comes late."""
    first = {"w": [0.0, 0.0], "running_mean": [0.0, 0.0], "running_var": [1.0, 1.0]}
    fall = {"w": [0.5, 0.5], "running_mean": [0.0, 0.0], "running_var": [0.75, 0.75]}
    state = state_of(NORMED, params=first)
    state = MEAN.close_round(state, [contribution(NORMED, fall)]).state
    late = contribution(NORMED, fall)
    late = replace(late, counters=replace(late.counters, staleness=1))
    state = MEAN.close_round(state, [late]).state
    found = tensors(NORMED, state.sections[PARAMS])
    assert found["running_var"] == close(0.25, 0.25)
    assert found["w"] == close(-1.0, -1.0)


def test_statistics_do_not_hide_what_the_weights_do() -> None:
    """Norms, cosine and clipping look at parameters: these two oppose, their means agree."""
    huge = {"running_mean": [1e4, 1e4], "running_var": [1e4, 1e4]}
    posted = [
        contribution(NORMED, {"w": [3.0, 4.0], **huge}),
        contribution(NORMED, {"w": [-3.0, -4.0], **huge}),
        contribution(NORMED, {"w": [300.0, 400.0], **huge}),
    ]
    state = state_of(
        NORMED, params={"w": [0.0] * 2, "running_mean": [0.0] * 2, "running_var": [1.0] * 2}
    )
    outcome = replace(MEAN, clip_ratio=10.0).close_round(state, posted).outcome
    assert outcome.norms == (5.0, 5.0, 500.0)
    assert outcome.clips == (1.0, 1.0, 0.1)
    assert outcome.cosine == pytest.approx((-1 + 1 - 1) / 3, abs=1e-6)
    assert outcome.norm == pytest.approx(50 / 3, abs=1e-5)


def test_a_fragment_of_buffers_only_has_no_pseudo_gradient_to_report() -> None:
    fragment = layout([], [("running_mean", 1)])
    posted = [contribution(fragment, {"running_mean": [value]}) for value in (1.0, 2.0, 6.0)]
    state = state_of(fragment, params={"running_mean": [0.0]})
    result = replace(RADIAL, outer=DILOCO, clip_ratio=1.0).close_round(state, posted)
    assert tensors(fragment, result.state.sections[PARAMS]) == {"running_mean": close(-3.0)}
    assert (result.outcome.norm, result.outcome.cosine) == (0.0, None)
    assert result.outcome.clips == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "fragment", [layout([]), layout([("e", 0)]), layout([("e", 0)], [("f", 0)])]
)
def test_a_fragment_without_elements_closes(fragment: FragmentLayout) -> None:
    values: Values = {slot.name: [] for slot in fragment.slots}
    posted = [contribution(fragment, values)] * 2
    result = RADIAL.close_round(state_of(fragment, params=values), posted)
    assert result.state.sections[PARAMS].numel() == 0
    assert (result.outcome.norm, result.outcome.cosine) == (0.0, None)


# -- clipping and cosine --------------------------------------------------------------------


def test_an_exploding_contribution_counts_with_the_clipped_norm() -> None:
    rule = replace(MEAN, clip_ratio=10.0)
    posted = [contribution(W, {"w": [value, 0.0]}) for value in (1.0, 2.0, 2e6)]
    result = rule.close_round(state_of(W, params={"w": [0.0, 0.0]}), posted)
    assert result.outcome.clips == (1.0, 1.0, pytest.approx(1e-5))
    assert tensors(W, result.state.sections[PARAMS])["w"] == close(-(1 + 2 + 20) / 3, 0.0)


def test_the_radial_rule_sees_clipped_lengths() -> None:
    rule = replace(RADIAL, clip_ratio=10.0)
    assert math.hypot(*merged(rule, [1.0, 0.0], [0.0, 2.0], [2e6, 0.0])) == pytest.approx(
        (1 + 2 + 20) / 3, rel=1e-6
    )


def test_the_cosine_is_the_mean_over_pairs_of_whole_fragments() -> None:
    generator = torch.Generator().manual_seed(3)
    data = torch.randn(4, 4, generator=generator) * torch.tensor([[1.0], [10.0], [0.1], [3.0]])
    fragment = layout([("a", 1), ("b", 3)])
    posted = [
        contribution(fragment, {"a": row[:1].tolist(), "b": row[1:].tolist()}) for row in data
    ]
    pairs = [
        torch.cosine_similarity(data[i], data[j], dim=0).item() for i in range(4) for j in range(i)
    ]
    state = state_of(fragment, params={"a": [0.0], "b": [0.0] * 3})
    found = MEAN.close_round(state, posted).outcome.cosine
    assert found == pytest.approx(sum(pairs) / len(pairs), abs=1e-6)


def test_the_cosine_leaves_out_who_did_not_move_and_is_none_below_two() -> None:
    def cosine(*deltas: Sequence[float]) -> float | None:
        posted = [contribution(W, {"w": delta}) for delta in deltas]
        state = state_of(W, params={"w": [0.0, 0.0]})
        return MEAN.close_round(state, posted).outcome.cosine

    assert cosine([1.0, 2.0]) is None
    assert cosine([1.0, 2.0], [0.0, 0.0]) is None
    assert cosine([1.0, 2.0], [0.0, 0.0], [2.0, 4.0]) == pytest.approx(1.0, abs=1e-6)
    assert cosine([1.0, 2.0], [1e-30, 1e-30]) is None, "nothing that small has a direction"


# -- never a non-finite version -------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_data_is_refused(bad: float) -> None:
    posted = contribution(W, {"w": [1.0, 1.0]})
    posted.delta[1] = bad
    with pytest.raises(NonFiniteError, match="params"):
        MEAN.close_round(state_of(W, params={"w": [0.0, 0.0]}), [posted])


def test_a_finite_step_that_overflows_is_refused() -> None:
    with pytest.raises(NonFiniteError):
        MEAN.close_round(
            state_of(W, params={"w": [3e38, 0.0]}), [contribution(W, {"w": [-3e38, 0.0]})]
        )
