"""FedYogi, FedAdam, FedAdagrad: the given values, and what the paper's formulas give."""

import math

import pytest
import torch

from gradientmail.algorithms.outer import Adagrad, Adam, Yogi


def close(*values: float) -> object:
    return pytest.approx(list(values), abs=1e-9)


def test_two_yogi_steps_are_the_given_ones() -> None:
    outer = Yogi(lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3)
    x = torch.tensor([1.0, 2.0], dtype=torch.float64)
    state = outer.init(x)
    x, state = outer.update(x, torch.tensor([0.4, 0.6], dtype=torch.float64), state)
    assert (-state["momentum"]).tolist() == close(-0.04, -0.06)
    assert state["variance"].tolist() == close(0.001601, 0.003601)
    assert x.tolist() == pytest.approx([0.9024687549, 1.9016527787], abs=1e-9)
    x, state = outer.update(x, torch.tensor([0.2, 0.1], dtype=torch.float64), state)
    assert (-state["momentum"]).tolist() == close(-0.056, -0.064)
    assert state["variance"].tolist() == close(0.002001, 0.003701)
    assert x.tolist() == pytest.approx([0.7800176471, 1.7981529393], abs=1e-9)


def test_an_adam_step_has_no_correction_of_its_first_steps() -> None:
    outer = Adam(lr=0.1, beta1=0.9, beta2=0.99, tau=1e-3)
    x = torch.tensor([1.0], dtype=torch.float64)
    x, state = outer.update(x, torch.tensor([0.4], dtype=torch.float64), outer.init(x))
    variance = 0.99 * 1e-6 + 0.01 * 0.16
    assert state["variance"].tolist() == close(variance)
    assert x.tolist() == close(1.0 - 0.1 * 0.04 / (math.sqrt(variance) + 1e-3))


def test_adagrad_adds_every_square_and_keeps_no_momentum() -> None:
    outer = Adagrad(lr=0.1, tau=1e-3)
    x = torch.tensor([1.0], dtype=torch.float64)
    state = outer.init(x)
    for _ in range(2):
        x, state = outer.update(x, torch.tensor([0.4], dtype=torch.float64), state)
    assert set(state) == {"variance"}
    assert state["variance"].tolist() == close(1e-6 + 2 * 0.16)


def test_a_gradient_of_zero_moves_nothing_at_first() -> None:
    for outer in (Adam(), Yogi(), Adagrad(beta1=0.9)):
        x, _ = outer.update(torch.ones(3), torch.zeros(3), outer.init(torch.ones(3)))
        assert torch.equal(x, torch.ones(3))
