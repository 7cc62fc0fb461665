"""A round closed chunk by chunk is the round closed at once, whatever the chunks."""

from collections.abc import Iterator

import pytest
import torch

from gradientmail.algorithms.aggregation import Aggregation
from gradientmail.algorithms.aggregator import (
    PARAMS,
    Aggregator,
    Contribution,
    FragmentState,
)
from gradientmail.algorithms.merge import Merge, RadialDirectionalMean, WeightedMean
from gradientmail.algorithms.weights import Tokens
from gradientmail.codecs.layout import CHUNK, TILE, layout
from gradientmail.codecs.precision import Precision
from tests.rounds.small import (
    DILOCO,
    MEAN,
    MOMENTUM,
    PLAIN,
    Recorded,
    contribution,
    state_of,
)

ONE = layout([("w", 1)])
BIG = layout(
    [("wte", 3000), ("up", CHUNK + 77), ("empty", 0), ("down", 2 * TILE + 1), ("bias", 5)],
    [("running_mean", 70), ("running_var", TILE)],
)


def random_contributions(seed: int) -> list[Contribution]:
    """Return three, of 1, 2 and 3 tokens; the second has no bias."""
    generator = torch.Generator().manual_seed(seed)
    contributions = []
    for index in range(3):
        values: dict[str, list[float] | None] = {
            slot.name: torch.randn(slot.numel, generator=generator).tolist() for slot in BIG.slots
        }
        if index == 1:
            values["bias"] = None
        contributions.append(contribution(BIG, values, tokens=index + 1))
    return contributions


@pytest.mark.parametrize("merge", [WeightedMean(), RadialDirectionalMean()])
def test_streaming_to_a_sink_gives_the_bits_of_closing_in_memory(merge: Merge) -> None:
    rule = Aggregator(merge=merge, weights=Tokens(), outer=DILOCO, clip_ratio=2.0)
    contributions = random_contributions(seed=0)
    state = FragmentState(layout=BIG, version=0, sections={PARAMS: contributions[0].delta * 2})
    memory = rule.close_round(state, contributions)
    sink = Recorded(BIG, {PARAMS: Precision.F32, MOMENTUM: Precision.F32})
    outcome = Aggregation(rule, BIG, [one.counters for one in contributions], contributions).run(
        state, sink
    )
    assert outcome == memory.outcome
    assert all(torch.equal(sink.vectors[k], v) for k, v in memory.state.sections.items())


@pytest.mark.parametrize("merge", [WeightedMean(), RadialDirectionalMean()])
def test_the_result_is_that_of_float64_without_chunks(merge: Merge) -> None:
    contributions = random_contributions(seed=1)
    rule = Aggregator(merge=merge, weights=Tokens(), outer=PLAIN)
    state = FragmentState(layout=BIG, version=0, sections={PARAMS: torch.zeros(BIG.numel)})
    found = -rule.close_round(state, contributions).state.sections[PARAMS]
    for slot in BIG.slots:
        inside = slice(slot.offset, slot.offset + slot.numel)
        held = [
            (one.delta[inside].double(), one.counters.tokens)
            for index, one in enumerate(contributions)
            if not (slot.name == "bias" and index == 1)
        ]
        total = sum(weight for _, weight in held)
        mean = torch.stack([vector * weight / total for vector, weight in held]).sum(0)
        parameter = slot in BIG.slots[: BIG.parameter_slots]
        if merge == RadialDirectionalMean() and parameter and slot.name != "wte" and slot.numel:
            units = torch.stack([v / v.norm() * w / total for v, w in held]).sum(0)
            length = sum(v.norm() * w / total for v, w in held)
            mean = units / units.norm() * length
        assert torch.allclose(found[inside].double(), mean, rtol=0, atol=1e-6), slot.name
    assert not found[3000:3008].any(), "padding stays zero"


def test_equal_arguments_give_equal_bits_and_are_left_as_they_were() -> None:
    rule = Aggregator(merge=RadialDirectionalMean(), weights=Tokens(), outer=DILOCO)
    contributions = random_contributions(seed=2)
    state = FragmentState(layout=BIG, version=0, sections={PARAMS: contributions[2].delta.clone()})
    before = [one.delta.clone() for one in contributions]
    first, second = rule.close_round(state, contributions), rule.close_round(state, contributions)
    assert first.outcome == second.outcome
    assert torch.equal(first.state.sections[PARAMS], second.state.sections[PARAMS])
    assert torch.equal(state.sections[PARAMS], contributions[2].delta)
    assert all(torch.equal(one.delta, old) for one, old in zip(contributions, before, strict=True))


@pytest.mark.parametrize("merge", [WeightedMean(), RadialDirectionalMean()])
def test_the_length_of_a_chunk_leaves_no_trace(
    merge: Merge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it can be tuned, and ``verify`` still finds the same bits."""
    rule = Aggregator(merge=merge, weights=Tokens(), outer=DILOCO, clip_ratio=1.0)
    contributions = random_contributions(seed=3)
    state = FragmentState(layout=BIG, version=0, sections={PARAMS: torch.zeros(BIG.numel)})
    usual = rule.close_round(state, contributions)

    def by_tiles(start: int, stop: int, length: int) -> Iterator[tuple[int, int]]:
        return ((low, low + TILE) for low in range(start, stop, TILE))

    monkeypatch.setattr("gradientmail.algorithms.aggregation.chunks", by_tiles)
    small = rule.close_round(state, contributions)
    assert small.outcome == usual.outcome
    assert all(torch.equal(small.state.sections[k], v) for k, v in usual.state.sections.items())


def test_contributions_are_summed_in_the_order_given() -> None:
    """Float addition is not associative: the caller fixes one order, that of names."""
    one, other, third = (contribution(ONE, {"w": [value]}) for value in (1e8, -1e8, 1.0))
    state = state_of(ONE, params={"w": [0.0]})
    found = [
        MEAN.close_round(state, order).state.sections[PARAMS][0].item()
        for order in ([one, other, third], [one, third, other])
    ]
    assert found == [pytest.approx(-1 / 3), 0.0]
