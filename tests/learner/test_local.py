"""What nobody exchanges is kept while it is good, and goes back to that."""

import math

import pytest
import torch
from torch import nn

from gradientmail.learner.local import LocalTensors
from gradientmail.logs import get_logger

LOG = get_logger("gradientmail.learner", learner="ann")


class Mixture(nn.Module):
    """Layers: exchanged, local, tied, frozen; and buffers: statistics, a cache, a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.own = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.tied = nn.Linear(2, 2, bias=False)
        self.tied.weight = self.shared.weight
        self.frozen = nn.Linear(2, 2).requires_grad_(requires_grad=False)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("least", torch.full((2,), math.inf))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.register_buffer("graph", torch.eye(2).to_sparse())


def poison(model: nn.Module) -> None:
    buffers = map(model.get_buffer, ("mean", "least", "cache"))
    with torch.no_grad():
        for tensor in (*model.parameters(), *buffers):
            tensor.fill_(math.nan)


def test_only_what_training_changes_and_nobody_exchanges_goes_back() -> None:
    model = Mixture()
    local = LocalTensors(model, {"shared.weight"})
    assert local.poisoned() == []
    before = model.own.weight.detach().clone()
    poison(model)
    assert local.poisoned() == ["own.weight", "mean"]
    assert local.go_back(3, LOG)
    assert local.poisoned() == []
    assert not local.go_back(4, LOG)
    assert torch.equal(model.own.weight, before)
    assert torch.equal(model.get_buffer("mean"), torch.zeros(2))
    assert not torch.isfinite(model.shared.weight).any(), "the run has it"


def test_the_newest_good_values_are_kept_and_bad_ones_never(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Mixture()
    local = LocalTensors(model, {"shared.weight"})
    nn.init.constant_(model.own.weight, 7.0)
    model.get_buffer("least").fill_(1.0)
    local.keep(5)
    poison(model)
    local.keep(6)
    local.go_back(6, LOG)
    assert "own.weight, mean (not exchanged) NaN or infinite after step 6" in caplog.text
    assert torch.equal(model.own.weight, torch.full((2, 2), 7.0))
    assert model.get_buffer("least").isnan().all(), "it began as infinity, and may be so again"


def test_each_is_said_to_be_back_at_the_step_it_was_kept_at(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Mixture()
    local = LocalTensors(model, {"shared.weight"})
    nn.init.constant_(model.own.weight, math.nan)
    local.keep(5000)
    poison(model)
    local.go_back(5001, LOG)
    first, second = caplog.messages
    assert first.startswith("own.weight (")
    assert "back at the values of step 0;" in first
    assert second.startswith("mean (")
    assert "back at the values of step 5000;" in second


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_tensors_of_eight_bits_go_back_too(dtype: torch.dtype) -> None:
    model = nn.Module()
    model.register_buffer("codes", torch.ones(2).to(dtype))
    local = LocalTensors(model, ())
    assert local.poisoned() == []
    model.get_buffer("codes").fill_(math.nan)
    assert local.poisoned() == ["codes"]
    assert local.go_back(3, LOG)
    assert torch.equal(model.get_buffer("codes").float(), torch.ones(2))
