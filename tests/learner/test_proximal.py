"""FedProx pulls inner steps back to the anchor; without mu it is FedAvg."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gradientmail as gm
from gradientmail.codecs.layout import layout
from gradientmail.errors import SettingsError
from gradientmail.learner.parameters import FragmentTensors
from gradientmail.learner.proximal import hook_proximal
from tests.e2e.team import PATIENCE_S, Team, make_run
from tests.e2e.toy import toy_model

LAYOUT = layout([("x", 1)])


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(1))


@dataclass
class Fragment:
    tensors: FragmentTensors
    anchor: Tensor


@dataclass
class Anchors:
    fragments: Sequence[Fragment]


def trajectory(mu: float, steps: int) -> list[float]:
    """Descend 0.5 (x - 1)^2 from the anchor 0 with rate .1."""
    model = Scalar()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    anchors = Anchors([Fragment(FragmentTensors(model, LAYOUT), torch.zeros(LAYOUT.numel))])
    hook_proximal(optimizer, anchors, mu)
    passed = []
    for _ in range(steps):
        optimizer.zero_grad()
        (0.5 * (model.x - 1.0).square()).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        passed.append(model.x.item())
    return passed


def test_the_given_trajectory() -> None:
    """numbers.md: .1, .18, .244; fixed point .5."""
    assert trajectory(mu=1.0, steps=3) == pytest.approx([0.1, 0.18, 0.244], abs=1e-6)
    assert trajectory(mu=1.0, steps=200)[-1] == pytest.approx(0.5, abs=1e-6)


def test_mu_0_is_plain_training_bit_for_bit() -> None:
    x, plain = torch.zeros(1, requires_grad=True), []
    optimizer = torch.optim.SGD([x], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        (0.5 * (x - 1.0).square()).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        plain.append(x.item())
    assert trajectory(mu=0.0, steps=20) == plain


def test_a_run_that_pulls_back_needs_the_optimizer(tmp_path: Path) -> None:
    make_run(tmp_path, "fedprox")
    with pytest.raises(SettingsError, match="give the learner its optimizer"):
        gm.Learner(str(tmp_path), toy_model()).__enter__()


def test_a_learner_pulls_back_by_itself_and_leaves_the_optimizer_as_it_was(tmp_path: Path) -> None:
    make_run(tmp_path, "fedprox", proximal=100.0, sync_every=4, stop_after_rounds=1)
    model = toy_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Team(tmp_path) as team:
        closer = team.closer()
        with gm.Learner(str(tmp_path), model, optimizer=optimizer, name="ann") as learner:
            anchor = [parameter.detach().clone() for parameter in model.parameters()]
            for parameter in model.parameters():
                parameter.grad = torch.ones_like(parameter)
            for _ in range(3):  # with lr mu = 1 the pull undoes all that the step before did
                optimizer.step()
                for parameter in model.parameters():
                    parameter.grad = torch.ones_like(parameter)
                learner.step(tokens=1, samples=1)
            for parameter, before in zip(model.parameters(), anchor, strict=True):
                torch.testing.assert_close(parameter.detach(), before - 0.01, rtol=0, atol=1e-6)
            while not learner.done:
                learner.step(tokens=1, samples=1)
        closer.result(PATIENCE_S)
    assert not optimizer._optimizer_step_pre_hooks
