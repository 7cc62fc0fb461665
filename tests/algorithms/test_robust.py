"""Rules that some may lie to: values by hand, what a lie can do, and ties that leave no trace."""

import math
import statistics
from collections.abc import Sequence
from itertools import permutations

import pytest
import torch

from gradientmail.algorithm import algorithm_of
from gradientmail.algorithms.aggregator import PARAMS, Aggregator
from gradientmail.algorithms.merge import RangeMerge
from gradientmail.algorithms.outer import Sgd
from gradientmail.algorithms.robust import Bulyan, CoordinateMedian, Krum, MultiKrum, TrimmedMean
from gradientmail.algorithms.weights import Uniform
from gradientmail.codecs.layout import layout
from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from tests.rounds.small import contribution, state_of, tensors

W = layout([("w", 2)])
HONEST = [[1.0, 2.0], [1.1, 2.1], [0.9, 1.9], [1.0, 2.1], [1.1, 1.9], [0.9, 2.0]]
LIE = [1e6, -1e6]


def merged(rule: RangeMerge, *deltas: Sequence[float]) -> list[float]:
    """Merge contributions of one tensor through a whole round."""
    closing = Aggregator(merge=rule, weights=Uniform(), outer=Sgd(1.0))
    posts = [contribution(W, {"w": delta}) for delta in deltas]
    after = closing.close_round(state_of(W, params={"w": [0.0, 0.0]}), posts)
    return [-value for value in tensors(W, after.state.sections[PARAMS])["w"]]


def close(*values: float) -> object:
    return pytest.approx(list(values), abs=1e-6)


def test_the_median_is_of_each_number() -> None:
    rule = CoordinateMedian()
    assert merged(rule, [1.0, 9.0], [3.0, 0.0], [2.0, 5.0]) == close(2.0, 5.0)
    assert merged(rule, [1.0, 9.0], [3.0, 0.0], [2.0, 5.0], [8.0, 6.0]) == close(2.5, 5.5)


def test_the_trimmed_mean_leaves_the_ends_out() -> None:
    assert merged(TrimmedMean(1), [1.0, 9.0], [3.0, 0.0], [2.0, 5.0]) == close(2.0, 5.0)
    found = merged(TrimmedMean(1), [1.0, 9.0], [3.0, 0.0], [2.0, 5.0], [100.0, 7.0])
    assert found == close(2.5, 6.0)
    assert merged(TrimmedMean(0), [1.0, 0.0], [3.0, 0.0]) == close(2.0, 0.0)


def test_krum_takes_one_with_near_neighbours() -> None:
    assert merged(Krum(1), [0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], LIE) == close(1.0, 0.0)


def test_multi_krum_averages_the_best() -> None:
    """Scores of n = 5, f = 1 are to two neighbours: 5, 2, 2, 5 and far."""
    posts = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], LIE]
    assert merged(MultiKrum(1), *posts) == close(1.5, 0.0)
    assert merged(MultiKrum(1, keep=1), *posts) == merged(Krum(1), *posts)
    assert merged(MultiKrum(0), *posts[:3]) == merged(Krum(0), *posts[:3]) == close(0.0, 0.0)


def krum(points: Sequence[Sequence[float]], byzantine: int) -> int:
    """Return the one Krum takes, by the paper's words."""
    scores = []
    for index, point in enumerate(points):
        others = [other for place, other in enumerate(points) if place != index]
        near = sorted(math.dist(point, other) ** 2 for other in others)
        scores.append((sum(near[: max(1, len(points) - byzantine - 2)]), index))
    return min(scores)[1]


@pytest.mark.parametrize("seed", range(5))
def test_krum_and_bulyan_are_their_papers_words(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(9, 2, generator=generator).tolist()
    assert merged(Krum(2), *points) == close(*points[krum(points, 2)])
    left = list(points)
    chosen = [left.pop(krum(left, 1)) for _ in range(len(points) - 2)]
    assert merged(Bulyan(1), *points) == close(
        *(at_the_median(own, 2) for own in zip(*chosen, strict=True))
    )


def at_the_median(values: Sequence[float], left_out: int) -> float:
    middle = statistics.median(values)
    near = sorted(values, key=lambda value: abs(value - middle))[: len(values) - left_out]
    return sum(near) / len(near)


@pytest.mark.parametrize(
    "rule", [CoordinateMedian(), TrimmedMean(1), Krum(1), MultiKrum(1), Bulyan(1)]
)
def test_one_lie_among_seven_moves_a_version_no_further_than_the_honest_are_apart(
    rule: RangeMerge,
) -> None:
    for lie in (LIE, [-1e6, 0.0], [0.0, 1e12], [float(2**90), 1.0]):
        for place in range(len(HONEST) + 1):
            found = merged(rule, *HONEST[:place], lie, *HONEST[place:])
            assert 0.9 <= found[0] <= 1.1
            assert 1.9 <= found[1] <= 2.1


@pytest.mark.parametrize("rule", [CoordinateMedian(), TrimmedMean(1)])
def test_equals_and_the_signs_of_zeros_leave_no_trace(rule: RangeMerge) -> None:
    posts = [[0.0, 1.0], [-0.0, 1.0], [0.0, 0.1], [-0.0, 0.2]]
    merger = rule.merger([1.0] * 4, [[1.0]] * 4, list)
    found = {
        merger(torch.tensor(order), range(4)).numpy().tobytes() for order in permutations(posts)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (CoordinateMedian(), 3),
        (TrimmedMean(2), 5),
        (Krum(1), 5),
        (MultiKrum(2), 7),
        (Bulyan(1), 7),
    ],
)
def test_a_round_too_small_for_a_promise_is_refused_saying_what_is_missing(
    rule: RangeMerge, least: int
) -> None:
    assert rule.least == least
    with pytest.raises(SettingsError, match=f"needs {least} contributions, and there are 1"):
        merged(rule, [1.0, 2.0])


def test_a_quorum_below_the_rules_need_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"quorum = 2, but merge = 'krum' .* at least 5"):
        algorithm_of(RunSettings(merge="krum", quorum=2))
    settings = {"byzantine": 0}
    assert algorithm_of(RunSettings(merge="krum", merge_settings=settings, quorum=3)).quorum == 3
