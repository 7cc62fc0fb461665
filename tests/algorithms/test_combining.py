"""Rules that see all contributions at once, and sums of pairs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import PARAMS, Aggregator, FragmentState
from gradientmail.algorithms.combining import Decoded, Whole
from gradientmail.algorithms.merge import Merger, Norms, RangeMerge, WeightedMean
from gradientmail.algorithms.reduce import ProductSums
from gradientmail.algorithms.weights import Uniform
from gradientmail.codecs.layout import CHUNK, TILE, layout
from tests.rounds.small import DILOCO, MEAN, contribution, posted

FRAGMENT = layout([("a", 70), ("b", 5)], [("mean", 3)])


@dataclass
class Largest:
    """Takes the largest of all, and notes what it was asked."""

    products: list[list[float]] | None = None
    least: int = 1

    def merger(
        self,
        weights: Sequence[float],
        norms: Sequence[Norms],
        products: Callable[[], list[list[float]]],
    ) -> Merger:
        self.products = products()
        self.asked: list[tuple[int, ...]] = []

        def largest(rows: Tensor, holders: Sequence[int]) -> Tensor:
            self.asked.append(tuple(holders))
            return rows.amax(0)

        return largest

    def coefficients(self, *_: object) -> list[list[float]]:
        raise AssertionError


def test_a_rule_sees_what_holds_the_tensor_and_buffers_take_their_mean() -> None:
    rule = Largest()
    assert isinstance(rule, RangeMerge)
    assert not isinstance(WeightedMean(), RangeMerge)
    contributions = [
        contribution(FRAGMENT, {"a": [1.0] * 70, "b": None, "mean": [1.0] * 3}),
        contribution(FRAGMENT, {"a": [2.0] * 70, "b": [-1.0] * 5, "mean": [3.0] * 3}, tokens=3),
    ]
    state = FragmentState(
        layout=FRAGMENT, version=0, sections={PARAMS: torch.zeros(FRAGMENT.numel)}
    )
    aggregator = replace(MEAN, merge=rule)
    found = -aggregator.close_round(state, contributions).state.sections[PARAMS]
    assert found[:70].tolist() == [2.0] * 70
    assert found[128:133].tolist() == [-1.0] * 5
    assert found[TILE : TILE + 3].tolist() == [2.5] * 3
    assert rule.asked == [(0, 1), (1,)]
    assert rule.products == [[70.0, 140.0], [140.0, 285.0]]


def test_clipping_comes_before_the_rule_and_cosines_ignore_it() -> None:
    one = layout([("w", TILE)])
    deltas = [torch.full((TILE,), value) for value in (1.0, 1.0, 100.0)]
    contributions = [posted(one, delta) for delta in deltas]
    state = FragmentState(layout=one, version=0, sections={PARAMS: torch.zeros(TILE)})
    rule = Largest()
    closed = replace(MEAN, merge=rule, clip_ratio=2.0).close_round(state, contributions)
    assert closed.state.sections[PARAMS].tolist() == [-2.0] * TILE
    assert closed.outcome.cosine == pytest.approx(1.0)
    assert rule.products is not None
    assert rule.products[2] == [2.0 * TILE, 2.0 * TILE, 4.0 * TILE]


def test_many_contributions_make_ranges_shorter_and_leave_the_bits_alone() -> None:
    big = layout([("w", CHUNK + TILE)])
    generator = torch.Generator().manual_seed(0)
    few = [posted(big, torch.randn(big.numel, generator=generator)) for _ in range(3)]
    state = FragmentState(layout=big, version=0, sections={PARAMS: torch.zeros(big.numel)})
    rule = Largest()
    aggregator = Aggregator(merge=rule, weights=Uniform(), outer=DILOCO)
    once = aggregator.close_round(state, few)
    calls = len(rule.asked)
    many = aggregator.close_round(state, few * 4)
    assert len(rule.asked) > calls
    assert torch.equal(once.state.sections[PARAMS], many.state.sections[PARAMS])


def test_a_linear_sum_without_units_has_no_unit_squares_to_speak_of() -> None:
    one = contribution(FRAGMENT, {"a": [2.0] * 70, "b": [1.0] * 5, "mean": [1.0] * 3})
    combine = Decoded(FRAGMENT, [one])
    found = combine(0, TILE, [[0.5, 2.0, 1.0]], None)
    assert found.total[:70].tolist() == [1.0] * 70
    assert found.total[128:133].tolist() == [2.0] * 5
    assert found.squares[:3].tolist() == [64.0, 6.0, 20.0]
    assert not found.unit_squares.any()


def test_products_have_the_same_bits_in_whatever_ranges_they_are_added() -> None:
    rows = torch.randn(3, 4 * TILE, generator=torch.Generator().manual_seed(1)).exp()
    whole, parts = ProductSums(3), ProductSums(3)
    whole.add(rows)
    for start in (2, 3, 0, 1):
        parts.add(rows[:, start * TILE : (start + 1) * TILE])
    assert parts.products() == whole.products()
    found = torch.tensor(whole.products(), dtype=torch.float64)
    assert torch.allclose(found, rows.double() @ rows.double().T, rtol=1e-12)


def test_nothing_held_by_anyone_stays_zero() -> None:
    absent = contribution(FRAGMENT, {"a": None, "b": [1.0] * 5, "mean": [0.0] * 3})
    whole = Whole(FRAGMENT, [absent], [absent.counters.norms], [1.0])
    found = whole.merge(lambda rows, _: rows[0] + 1.0, 0, TILE, [[1.0] * 3])
    assert not found.total[:128].any()
    assert found.total[128:133].tolist() == [2.0] * 5
