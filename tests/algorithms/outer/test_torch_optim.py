"""Classes of torch.optim by name: their own steps, bit for bit, whatever the chunks."""

from typing import Any

import pytest
import torch

from gradientmail.algorithms.outer import OUTERS, TorchOptimizer, Turn
from gradientmail.errors import SettingsError

ELEMENTWISE: dict[str, dict[str, Any]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "weight_decay": 0.1},
    "Adamax": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.9},
    "Rprop": {},
    "Adagrad": {"initial_accumulator_value": 0.1},
    "Adadelta": {},
    "ASGD": {},
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_its_steps_are_the_optimizers_own(name: str) -> None:
    outer = TorchOptimizer(name, ELEMENTWISE[name])
    parameter = torch.nn.Parameter(torch.sin(torch.arange(4096.0)))
    theirs = getattr(torch.optim, name)([parameter], **ELEMENTWISE[name])
    ours = parameter.detach().clone()
    state = outer.init(ours)
    for step in range(7):
        gradient = torch.cos(torch.arange(4096.0) * (step + 1))
        parameter.grad = gradient.clone()
        theirs.step()
        ours, state = outer.update(ours, gradient, state, Turn(step=step))
        assert torch.equal(ours, parameter.detach())


def test_a_vector_longer_than_one_thread_takes_is_the_same_in_parts() -> None:
    outer = TorchOptimizer("AdamW", {"lr": 0.1})
    theta, gradient = torch.sin(torch.arange(2.0 * 69_632)).view(2, -1)
    whole, state = outer.update(theta, gradient, outer.init(theta))
    parts = [
        outer.update(part, own, outer.init(part))[0]
        for part, own in zip(theta.split(4096), gradient.split(4096), strict=True)
    ]
    assert torch.equal(whole, torch.cat(parts))
    assert set(state) == {"exp_avg", "exp_avg_sq"}


def test_a_turn_scales_the_learning_rate() -> None:
    outer = TorchOptimizer("SGD", {"lr": 0.5})
    theta, _ = outer.update(torch.ones(1), torch.ones(1), {}, Turn(scale=0.5))
    assert theta.item() == 0.75


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("LBFGS", {}, "closure"),
        ("Adafactor", {}, "more than one element at a time"),
        ("SparseAdam", {}, "SparseAdam does not support dense gradients"),
        ("AdmW", {}, "did you mean 'AdamW'"),
        ("SGD", {"momentumm": 0.9}, "unexpected keyword argument 'momentumm'"),
        ("SGD", {"lr": -1.0}, "Invalid learning rate"),
    ],
)
def test_what_cannot_step_chunk_by_chunk_is_refused_by_name(
    name: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        OUTERS.make(f"torch.optim.{name}", settings)
    assert f"torch.optim.{name}" in str(caught.value)
