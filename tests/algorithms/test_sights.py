"""What a round records of each learner: by definition, and on a part of long fragments."""

import math

import pytest
import torch

from gradientmail.algorithms.aggregator import PARAMS, Aggregator, FragmentState
from gradientmail.algorithms.merge import WeightedMean
from gradientmail.algorithms.outer import Nesterov
from gradientmail.algorithms.sights import MEASURED, looked_at
from gradientmail.algorithms.weights import Uniform
from gradientmail.codecs.layout import CHUNK, TILE, layout
from tests.rounds.small import posted

RULE = Aggregator(merge=WeightedMean(), weights=Uniform(), outer=Nesterov(0.7, 0.9))


def test_divergence_and_cosine_are_what_they_are_defined_as() -> None:
    wide = layout([("w", 5000)])
    generator = torch.Generator().manual_seed(0)
    theta, *deltas = torch.randn(4, wide.numel, generator=generator)
    theta[5000:] = 0.0
    for delta in deltas:
        delta[5000:] = 0.0
    state = FragmentState(layout=wide, version=0, sections={PARAMS: theta})
    result = RULE.close_round(state, [posted(wide, delta) for delta in deltas])
    new, mean = result.state.sections[PARAMS], torch.stack(deltas).mean(0)
    for delta, sight in zip(deltas, result.outcome.sights, strict=True):
        apart = (theta - delta - new).norm() / new.norm()
        assert sight.divergence == pytest.approx(apart.item(), rel=1e-5)
        cosine = torch.cosine_similarity(delta, mean, dim=0).item()
        assert sight.cosine == pytest.approx(cosine, abs=1e-5)


def test_who_did_not_move_has_no_cosine() -> None:
    one = layout([("w", 2)])
    state = FragmentState(layout=one, version=0, sections={PARAMS: torch.ones(one.numel)})
    posts = [posted(one, torch.zeros(one.numel)), posted(one, torch.ones(one.numel))]
    first, second = RULE.close_round(state, posts).outcome.sights
    assert first.cosine is None
    assert second.cosine == pytest.approx(1.0)


def test_a_version_of_zeros_divides_by_nothing() -> None:
    one = layout([("w", 2)])
    state = FragmentState(layout=one, version=0, sections={PARAMS: torch.zeros(one.numel)})
    (sight,) = RULE.close_round(state, [posted(one, torch.zeros(one.numel))]).outcome.sights
    assert sight.divergence == 0.0
    assert math.isfinite(sight.divergence)


def test_of_a_long_fragment_only_a_part_is_looked_at() -> None:
    numel = 100 * CHUNK
    places = list(looked_at(0, numel, numel))
    assert sum(stop - start for start, stop in places) == MEASURED
    assert [start for start, _ in places] == [0, 25 * CHUNK, 50 * CHUNK, 75 * CHUNK]
    cut = [one for start in range(0, numel, TILE) for one in looked_at(start, start + TILE, numel)]
    assert cut == [(at, at + TILE) for start, stop in places for at in range(start, stop, TILE)]


@pytest.mark.parametrize("tiles", [1, 2, 3, 5, 63, 64])
def test_of_a_short_fragment_everything_is_looked_at(tiles: int) -> None:
    places = list(looked_at(0, tiles * TILE, tiles * TILE))
    assert sum(stop - start for start, stop in places) == tiles * TILE
