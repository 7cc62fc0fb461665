"""Weights: the given value, and what each rule makes of a contribution."""

from typing import Any

import pytest

from gradientmail.algorithms.weights import WEIGHTS, Work

LATE = Work(tokens=100, steps=10, samples=8, staleness=3)


@pytest.mark.parametrize(
    ("name", "settings", "weight"),
    [
        ("tokens2-per-step", {}, 1000.0),
        ("tokens", {}, 100.0),
        ("samples", {}, 8.0),
        ("uniform", {}, 1.0),
        ("tokens-by-staleness", {"decay": 1.0}, 25.0),
        ("tokens-by-staleness", {"decay": 0.0}, 100.0),
        ("tokens-power", {"gamma": 0.5}, 10.0),
        ("tokens-power", {"gamma": 0.0}, 1.0),
        ("tokens-power", {"gamma": 1.0}, 100.0),
    ],
)
def test_a_contribution_weighs_what_it_should(
    name: str, settings: dict[str, Any], weight: float
) -> None:
    assert WEIGHTS.make(name, settings).weigh(LATE) == weight


def test_the_largest_counters_a_record_may_hold_give_a_weight_it_may_hold() -> None:
    most = Work(tokens=2**53 - 1, steps=1, samples=2**53 - 1)
    for name in WEIGHTS.names():
        assert WEIGHTS.make(name, {}).weigh(most) < 1e38
