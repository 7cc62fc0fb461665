"""Guards: who is left out, how far a step shrinks, and that nobody is without a majority."""

import pytest

from gradientmail.algorithms.aggregator import PARAMS, Aggregator
from gradientmail.algorithms.guards import GUARDS, Damp, NoGuard, Ruling, Suppress
from gradientmail.algorithms.merge import WeightedMean
from gradientmail.algorithms.outer import Sgd
from gradientmail.algorithms.sights import Sight
from gradientmail.algorithms.weights import Uniform
from gradientmail.codecs.layout import layout
from tests.rounds.small import contribution, state_of, tensors


def seen(*cosines: float | None, divergence: float = 0.1) -> list[Sight]:
    return [Sight(divergence=divergence, cosine=cosine) for cosine in cosines]


def test_by_default_nothing_is_done() -> None:
    assert type(GUARDS.make("off", {})) is NoGuard
    assert NoGuard().judge(seen(-1.0, 1.0, 1.0)) == Ruling((False, False, False))


def test_those_against_the_round_are_suppressed_and_never_half_of_it() -> None:
    rule = Suppress(least_cosine=0.2)
    assert rule.judge(seen(0.9, -0.5, 0.8)).suppressed == (False, True, False)
    assert rule.judge(seen(0.1, -0.5, 0.0)).suppressed == (False, True, False)
    assert rule.judge(seen(0.1, -0.5, 0.0, 0.9, 0.9)).suppressed == (
        False,
        True,
        True,
        False,
        False,
    )
    assert rule.judge(seen(-0.5, 0.5)).suppressed == (False, False)
    assert rule.judge(seen(None, 0.5, 0.5)).suppressed == (False, False, False)


def test_those_too_far_away_are_suppressed() -> None:
    sights = [*seen(0.9, 0.9), Sight(divergence=5.0, cosine=0.9)]
    assert Suppress(most_divergence=1.0).judge(sights).suppressed == (False, False, True)
    assert not any(Suppress().judge(sights).suppressed)


def test_the_step_shrinks_as_the_farthest_is_beyond_the_bound() -> None:
    rule = Damp(most_divergence=0.1, least=0.25)
    assert rule.judge(seen(0.5, 0.5, divergence=0.1)).scale == 1.0
    assert rule.judge(seen(0.5, 0.5, divergence=0.2)).scale == pytest.approx(0.5)
    assert rule.judge(seen(0.5, 0.5, divergence=9.0)).scale == 0.25
    assert rule.judge([]).scale == 1.0


# -- in a round -------------------------------------------------------------------------------

W = layout([("w", 2)])
POSTS = [contribution(W, {"w": delta}) for delta in ([1.0, 0.0], [1.0, 0.2], [-1.0, 0.0])]
START = state_of(W, params={"w": [3.0, 4.0]})


def test_a_suppressed_contribution_weighs_nothing_and_its_weight_is_kept() -> None:
    rule = Aggregator(
        merge=WeightedMean(), weights=Uniform(), outer=Sgd(1.0), guard=Suppress(least_cosine=0.0)
    )
    result = rule.close_round(START, POSTS)
    assert result.outcome.suppressed == (False, False, True)
    assert result.outcome.weights == (1.0, 1.0, 1.0)
    assert tensors(W, result.state.sections[PARAMS])["w"] == pytest.approx([2.0, 3.9])


def test_a_damped_round_takes_a_shorter_step_along_the_same_line() -> None:
    """The farthest is at (4, 4), the round at (8/3, 59/15): divergence 0.2814."""
    rule = Aggregator(
        merge=WeightedMean(), weights=Uniform(), outer=Sgd(1.0), guard=Damp(most_divergence=0.1)
    )
    outcome = rule.close_round(START, POSTS).outcome
    far = ((4 - 8 / 3) ** 2 + (4 - 59 / 15) ** 2) ** 0.5 / ((8 / 3) ** 2 + (59 / 15) ** 2) ** 0.5
    assert outcome.scale == pytest.approx(0.1 / far, rel=1e-6)
