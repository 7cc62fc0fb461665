"""Delayed Nesterov: N arrivals without early momentum are one Nesterov step on their mean."""

import pytest
import torch

from gradientmail.algorithms.outer import OUTERS, DelayedNesterov, Nesterov, Turn
from gradientmail.errors import SettingsError

FEW = [0.4, -0.2, 0.9]


def arrived(outer: DelayedNesterov, *gradients: float) -> tuple[list[float], dict[str, float]]:
    theta, seen = torch.ones(1, dtype=torch.float64), []
    state = outer.init(theta)
    for step, gradient in enumerate(gradients):
        delta = torch.tensor([gradient], dtype=torch.float64)
        theta, state = outer.update(theta, delta, state, Turn(step=step))
        seen.append(theta.item())
    return seen, {name: vector.item() for name, vector in state.items()}


def test_without_early_momentum_n_arrivals_are_a_nesterov_step_on_their_mean() -> None:
    plain = Nesterov(lr=0.7, momentum=0.9)
    theta = torch.ones(1, dtype=torch.float64)
    state = plain.init(theta)
    for _ in range(2):
        mean = torch.tensor([sum(FEW) / 3], dtype=torch.float64)
        theta, state = plain.update(theta, mean, state)
    seen, after = arrived(DelayedNesterov(lr=0.7, momentum=0.9, arrivals=3), *FEW, *FEW)
    assert seen[-1] == pytest.approx(theta.item(), abs=1e-9)
    assert after == {"momentum": pytest.approx(state["momentum"].item()), "accumulated": 0.0}


def test_every_arrival_is_the_algorithms() -> None:
    """arXiv 2401.09135, Algorithm 3, written out."""
    n, c, b, e = 3, 0.2, 0.9, 0.7
    theta = m = acc = 0.0
    theta, expected = 1.0, []
    for t, g in enumerate([*FEW, *FEW]):
        acc += g
        if (t + 1) % n == 0:
            m = b * m + acc / n
            theta -= e * ((1 - c * n + c) * b * m + g / n)
            acc = 0.0
        else:
            theta -= e * (c * b * m + g / n)
        expected.append(theta)
    seen, _ = arrived(DelayedNesterov(lr=e, momentum=b, arrivals=n, early=c), *FEW, *FEW)
    assert seen == pytest.approx(expected, abs=1e-9)


def test_more_than_the_whole_momentum_cannot_be_spent_early() -> None:
    with pytest.raises(SettingsError, match=r"early = 0.5 with arrivals = 4: set early"):
        OUTERS.make("delayed-nesterov", {"early": 0.5, "arrivals": 4})
