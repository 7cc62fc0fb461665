"""Linear merging rules as coefficients; the vectors here are small and in float64."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from gradientmail.algorithms.merge import (
    NEGLIGIBLE,
    Coefficients,
    Merge,
    NormClippedMean,
    RadialDirectionalMean,
    WeightedMean,
    clip_factors,
    reciprocal,
)

RULES = pytest.mark.parametrize("rule", [WeightedMean(), RadialDirectionalMean()])
Row = Sequence[Sequence[float] | None]
"""One contribution: each tensor's values, or None where it is absent."""


class Merged:
    """What ``rule`` makes of ``rows``; ``looks`` counts its passes over the data."""

    def __init__(
        self, rule: Merge, rows: Sequence[Row], weights: Sequence[float], names: Sequence[str] = ()
    ) -> None:
        self.looks = 0
        self._data = [
            [None if t is None else torch.tensor(t, dtype=torch.float64) for t in row]
            for row in rows
        ]
        norms = [[None if t is None else t.norm().item() for t in row] for row in self._data]
        names = names or [f"layer.{slot}.weight" for slot in range(len(rows[0]))]
        self.coefficients = rule.coefficients(names, weights, norms, self._combined_norms)
        self.tensors = [tensor.tolist() for tensor in self._combine(self.coefficients)]

    def _combine(self, coefficients: Coefficients) -> list[Tensor]:
        slots = range(len(self._data[0]))
        return [torch.stack(self._parts(coefficients, slot)).sum(0) for slot in slots]

    def _parts(self, coefficients: Coefficients, slot: int) -> list[Tensor]:
        parts = [
            row[slot] * own[slot]
            for row, own in zip(self._data, coefficients, strict=True)
            if row[slot] is not None
        ]
        return parts or [torch.zeros(1, dtype=torch.float64)]

    def _combined_norms(self, coefficients: Coefficients) -> list[float]:
        self.looks += 1
        return [tensor.norm().item() for tensor in self._combine(coefficients)]


def merged(rule: Merge, *vectors: Sequence[float], weights: Sequence[float] = ()) -> list[float]:
    """Merge contributions of one tensor each."""
    result = Merged(rule, [[v] for v in vectors], weights or [1.0] * len(vectors))
    tensor: list[float] = result.tensors[0]
    return tensor


def close(*values: float) -> object:
    return pytest.approx(list(values), abs=1e-9)


# -- the mean -------------------------------------------------------------------------------


def test_the_weighted_mean_is_one() -> None:
    assert merged(WeightedMean(), [2.0, 0.0], [0.0, 2.0]) == close(1.0, 1.0)
    assert merged(WeightedMean(), [3.0], [0.0], weights=[1000.0, 500.0]) == close(2.0)


@RULES
@pytest.mark.parametrize("anything", [[0.0, 0.0], [100.0, -7.0], None])
def test_weight_zero_contributes_nothing_and_costs_nothing(
    rule: Merge, anything: list[float] | None
) -> None:
    """Gradients summing to [6, 9] at weight 3 are [2, 3] each, whatever weighs nothing."""
    result = Merged(rule, [[[2.0, 3.0]], [anything]], weights=[3.0, 0.0])
    assert result.coefficients == [[1.0], [0.0]]
    assert result.tensors == [[2.0, 3.0]]
    assert result.looks == 0


@RULES
def test_weights_that_are_all_zero_give_zero(rule: Merge) -> None:
    assert merged(rule, [1.0], [2.0], weights=[0.0, 0.0]) == [0.0]


@RULES
def test_one_contribution_is_its_own_mean_exactly_and_read_once(rule: Merge) -> None:
    result = Merged(rule, [[[0.1, 0.2], [0.3]]], weights=[1 / 3])
    assert result.coefficients == [[1.0, 1.0]]
    assert result.looks == 0


@RULES
def test_a_tensor_is_merged_over_those_who_hold_it(rule: Merge) -> None:
    rows: list[Row] = [[[2.0], [1.0], None], [None, [1.0], None], [None, [4.0], None]]
    result = Merged(rule, rows, weights=[5.0, 1.0, 1.0])
    assert result.tensors == [close(2.0), close((5 + 1 + 4) / 7), [0.0]]
    assert [row[2] for row in result.coefficients] == [0.0, 0.0, 0.0]


@RULES
def test_no_contribution_at_all_has_no_coefficients(rule: Merge) -> None:
    assert rule.coefficients(["a"], [], [], lambda _: [0.0]) == []


# -- the radial-directional mean ------------------------------------------------------------


def test_directions_at_right_angles_keep_their_length() -> None:
    vector = merged(RadialDirectionalMean(), [2.0, 0.0], [0.0, 2.0])
    assert vector == close(math.sqrt(2), math.sqrt(2))
    assert math.hypot(*vector) == pytest.approx(2.0)
    assert math.hypot(*merged(WeightedMean(), [2.0, 0.0], [0.0, 2.0])) == pytest.approx(
        1.414213562
    )


def test_zeros_stay_zero() -> None:
    assert merged(RadialDirectionalMean(), [0.0, 0.0], [0.0, 0.0]) == [0.0, 0.0]


def test_a_zero_shortens_the_mean_and_does_not_turn_it() -> None:
    assert merged(RadialDirectionalMean(), [3.0, 4.0], [0.0, 0.0]) == close(1.5, 2.0)


def test_directions_that_cancel_fall_back_to_the_mean() -> None:
    assert merged(RadialDirectionalMean(), [2.0, 0.0], [-2.0, 0.0]) == [0.0, 0.0]
    assert merged(RadialDirectionalMean(), [3.0, 0.0], [-1.0, 0.0]) == close(1.0, 0.0)


def test_length_and_direction_are_averaged_apart() -> None:
    """Weights 3 and 1: length (3*1 + 1*5)/4 = 2, direction along (3, 1)."""
    vector = merged(RadialDirectionalMean(), [1.0, 0.0], [0.0, 5.0], weights=[3.0, 1.0])
    assert vector == close(2 * 3 / math.sqrt(10), 2 * 1 / math.sqrt(10))


def test_embeddings_take_the_plain_mean_and_cost_no_second_look() -> None:
    rows: list[Row] = [[[2.0, 0.0]] * 4, [[0.0, 2.0]] * 4]
    embeddings = ["tok_embeddings.weight", "transformer.wte.weight", "wpe", "embed.0"]
    result = Merged(RadialDirectionalMean(), rows, [1.0, 1.0], names=embeddings)
    assert result.tensors == [[1.0, 1.0]] * 4
    assert result.looks == 0
    mixed = ["wte", "mlp.weight", "attn.weight", "norm.weight"]
    result = Merged(RadialDirectionalMean(), rows, [1.0, 1.0], names=mixed)
    assert result.tensors[0] == [1.0, 1.0]
    assert result.tensors[1] == close(math.sqrt(2), math.sqrt(2))
    assert result.looks == 1


vectors = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3)
weights = st.floats(1e-3, 1e3)


@given(st.lists(st.tuples(vectors, weights), min_size=2, max_size=6))
def test_the_length_is_the_mean_length_unless_directions_cancel(
    contributions: list[tuple[list[float], float]],
) -> None:
    data = [vector for vector, _ in contributions]
    own = [weight for _, weight in contributions]
    lengths = [math.hypot(*vector) for vector in data]
    assume(min(lengths) > 1e-3)
    units = [[x / n for x in vector] for vector, n in zip(data, lengths, strict=True)]
    assume(math.hypot(*merged(WeightedMean(), *units, weights=own)) > 1e-3)
    found = merged(RadialDirectionalMean(), *data, weights=own)
    (mean_length,) = merged(WeightedMean(), *([length] for length in lengths), weights=own)
    assert math.hypot(*found) == pytest.approx(mean_length, rel=1e-9)


@given(st.lists(st.tuples(vectors, weights), min_size=1, max_size=6), st.floats(1e-3, 1e3))
def test_only_the_ratio_of_weights_matters(
    contributions: list[tuple[list[float], float]], factor: float
) -> None:
    data = [vector for vector, _ in contributions]
    own = [weight for _, weight in contributions]
    first = merged(WeightedMean(), *data, weights=own)
    second = merged(WeightedMean(), *data, weights=[weight * factor for weight in own])
    assert first == pytest.approx(second, abs=1e-9)


@given(
    st.lists(st.floats(0.0, 1e12), min_size=2, max_size=5),
    st.sampled_from([1e-45, 1e-38, 1e-20, NEGLIGIBLE, 2 * NEGLIGIBLE, 1e-10]),
)
def test_no_norm_however_small_makes_a_coefficient_that_float32_cannot_hold(
    norms: list[float], tiny: float
) -> None:
    """Directions at the edge of cancelling are the worst: one more factor of a million."""
    rows = RadialDirectionalMean().coefficients(
        ["w"], [1.0] * (len(norms) + 1), [[tiny], *([norm] for norm in norms)], lambda _: [1.1e-6]
    )
    assert all(abs(value) < torch.finfo(torch.float32).max for row in rows for value in row)


# -- norms cut to the median ----------------------------------------------------------------


def test_none_is_longer_than_the_median() -> None:
    rule = NormClippedMean()
    assert merged(rule, [3.0, 4.0], [0.0, 5.0], [600.0, 800.0]) == close(2.0, (4 + 5 + 4) / 3)
    assert merged(NormClippedMean(ratio=2.0), [5.0], [5.0], [800.0]) == close(20 / 3)


def test_a_bound_of_its_own_cuts_everyone() -> None:
    assert merged(NormClippedMean(most=1.0), [5.0], [-8.0], [9.0]) == close(1 / 3)


def test_what_weighs_nothing_does_not_move_the_median() -> None:
    found = merged(NormClippedMean(), [1.0], [1.0], [9.0], [9.0], weights=[1.0, 1.0, 0.0, 0.0])
    assert found == close(1.0)


# -- clipping -------------------------------------------------------------------------------


def test_a_norm_far_above_the_median_is_scaled_down_to_the_limit() -> None:
    assert clip_factors([1.0, 2.0, 40.0], ratio=10.0) == [1.0, 1.0, 0.5]
    assert clip_factors([1.0, 1.0, 2.0, 2.0, 1e12], ratio=1.0)[-1] * 1e12 == pytest.approx(2.0)


def test_what_is_at_the_limit_is_left_alone() -> None:
    assert clip_factors([1.0, 1.0, 10.0], ratio=10.0) == [1.0, 1.0, 1.0]


def test_below_three_there_is_no_majority_to_call_a_norm_exceptional() -> None:
    assert clip_factors([], ratio=10.0) == []
    assert clip_factors([1e6], ratio=10.0) == [1.0]
    assert clip_factors([1.0, 1e6], ratio=10.0) == [1.0, 1.0]


def test_without_a_ratio_nothing_is_clipped() -> None:
    assert clip_factors([1.0, 1.0, 1e6], ratio=None) == [1.0, 1.0, 1.0]


def test_a_majority_of_zeros_clips_nobody() -> None:
    assert clip_factors([0.0, 0.0, 5.0], ratio=10.0) == [1.0, 1.0, 1.0]


@given(st.lists(st.floats(0.0, 1e12), max_size=8), st.floats(1.0, 1e6))
def test_factors_only_shrink_and_the_median_is_never_touched(
    norms: list[float], ratio: float
) -> None:
    factors = clip_factors(norms, ratio)
    assert all(0.0 < factor <= 1.0 for factor in factors)
    assert sum(factor == 1.0 for factor in factors) >= len(norms) / 2


def test_a_negligible_norm_has_no_direction() -> None:
    assert reciprocal(4.0) == 0.25
    assert [reciprocal(norm) for norm in (None, 0.0, NEGLIGIBLE)] == [0.0, 0.0, 0.0]
