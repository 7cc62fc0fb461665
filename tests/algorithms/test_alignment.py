"""Alignment: each rule's formula, exactly where it can be exact, and what it keeps."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gradientmail.algorithms.alignment import (
    ALIGNMENTS,
    Adaptive,
    Alignment,
    Blend,
    Carry,
    Eager,
    Overwrite,
)

RULES = [Overwrite(), Blend(0.0), Blend(0.5), Blend(1.0), Carry(), Adaptive()]
rules = pytest.mark.parametrize("rule", RULES, ids=str)

vectors = st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4).map(torch.tensor)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32)


def drifted(rule: Alignment, drift: Tensor, movement: Tensor) -> Tensor:
    """Return how far from the commit the learner ends, having drifted since its snapshot."""
    anchor, snapshot = vector(10, 20), vector(9, 21)
    committed = anchor + movement
    return rule.align(anchor, committed, snapshot + drift, snapshot) - committed


# -- the formulas ---------------------------------------------------------------------------


@given(vectors, vectors, vectors, vectors)
def test_overwrite_is_the_commit(anchor: Tensor, new: Tensor, local: Tensor, old: Tensor) -> None:
    assert torch.equal(Overwrite().align(anchor, new, local, old), new)


@given(vectors, vectors, vectors, vectors)
def test_blend_is_exact_at_both_ends(
    anchor: Tensor, new: Tensor, local: Tensor, old: Tensor
) -> None:
    assert torch.equal(Blend(0.0).align(anchor, new, local, old), new)
    assert torch.equal(Blend(1.0).align(anchor, new, local, old), local)


def test_blend_keeps_its_share_of_the_local_value() -> None:
    assert Blend(0.25).align(vector(0), vector(8), vector(4), vector(0)).item() == 7.0


def test_carry_keeps_every_step_since_the_snapshot() -> None:
    local, snapshot, committed = vector(5, -1), vector(3, 1), vector(10, 20)
    assert Carry().align(vector(0, 0), committed, local, snapshot).tolist() == [12, 18]


@given(vectors, vectors)
def test_carry_alone_on_a_commit_of_its_own_snapshot_is_plain_training(
    snapshot: Tensor, drift: Tensor
) -> None:
    """One learner, plain averaging: the commit is what it posted, so nothing may change."""
    snapshot, drift = snapshot.round(), drift.round()
    local = snapshot + drift
    assert torch.equal(Carry().align(vector(0, 0, 0, 0), snapshot, local, snapshot), local)


# -- adaptive -------------------------------------------------------------------------------


def test_adaptive_carries_all_of_a_drift_that_agrees() -> None:
    assert drifted(Adaptive(), vector(0.5, 0), vector(2, 0)).tolist() == [0.5, 0]


def test_adaptive_drops_a_drift_that_opposes() -> None:
    assert drifted(Adaptive(), vector(-0.5, 0), vector(2, 0)).tolist() == [0, 0]


def test_adaptive_carries_by_cosine() -> None:
    drift = vector(1, 1)
    kept = drifted(Adaptive(), drift, vector(2, 0))
    assert kept.tolist() == pytest.approx((drift / math.sqrt(2)).tolist(), abs=1e-5)


def test_adaptive_without_drift_or_movement_is_the_commit() -> None:
    assert drifted(Adaptive(), vector(0, 0), vector(2, 0)).tolist() == [0, 0]
    assert drifted(Adaptive(), vector(1, 0), vector(0, 0)).tolist() == [0, 0]


def test_adaptive_stays_finite_where_squares_do_not() -> None:
    huge = vector(1e30, 0)
    assert torch.isfinite(drifted(Adaptive(), huge, huge)).all()


# -- what all of them share -----------------------------------------------------------------


@rules
def test_nothing_it_is_given_is_changed(rule: Alignment) -> None:
    given_vectors = torch.arange(16.0).view(4, 4)
    before = given_vectors.clone()
    rule.align(*given_vectors.unbind())
    assert torch.equal(given_vectors, before)


@rules
def test_a_learner_that_did_not_train_past_its_snapshot_loses_nothing(rule: Alignment) -> None:
    """And one that never trained at all ends on the commit, but for what a blend keeps."""
    anchor, committed = vector(1, 2), vector(3, 5)
    aligned = rule.align(anchor, committed, anchor, anchor)
    kept = rule.mixing if isinstance(rule, Blend) else 0.0
    assert torch.equal(aligned, committed * (1 - kept) + anchor * kept)


@rules
def test_a_rule_that_keeps_steps_says_so(rule: Alignment) -> None:
    """Steps stay counted exactly where the drift is still in the parameters."""
    assert bool(drifted(rule, vector(0.5, 0.5), vector(2, 2)).any()) == rule.keeps


@rules
def test_an_empty_fragment_aligns(rule: Alignment) -> None:
    nothing = torch.empty(0)
    assert rule.align(nothing, nothing, nothing, nothing).numel() == 0


def test_eager_puts_the_newest_steps_in_the_place_of_the_last_ones() -> None:
    anchor, committed, snapshot, local = vector(1, 1), vector(4, 4), vector(2, 1), vector(2, 3)
    aligned = Eager(0.5).align(anchor, committed, local, snapshot)
    assert aligned.tolist() == [4 + 0.5 * (0 - 1), 4 + 0.5 * (2 - 0)]


def test_the_names_of_settings_make_the_rules() -> None:
    made = {name: make(0.25) for name, make in ALIGNMENTS.items()}
    assert made == {
        "overwrite": Overwrite(),
        "blend": Blend(0.25),
        "carry": Carry(),
        "adaptive": Adaptive(),
        "eager": Eager(0.25),
    }
