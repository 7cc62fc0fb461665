"""Models whose export is hard, and stores that hold a run of them."""

import random

import torch
from torch import nn

from gradientmail.clock import SystemClock
from gradientmail.config import RunSettings
from gradientmail.operations.creating import create_run
from gradientmail.records.manifest import Manifest
from gradientmail.store.memory import MemoryStore


class Tied(nn.Module):
    """A head tied to its embedding, a frozen layer, a scalar and an empty tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.middle = nn.Linear(4, 4).requires_grad_(requires_grad=False)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.zeros(0, 3))


class Wrapper(nn.Module):
    """A user's own module called ``module``: its name is no wrapper's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def small_model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Linear(30, 40, bias=False), nn.BatchNorm1d(40)
    )


def shake(model: nn.Module) -> nn.Module:
    """Draw every float of ``model`` anew, so that nothing is equal by default."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.normal_()
            else:
                tensor.fill_(17)
    return model


async def create(store: MemoryStore, model: nn.Module, **settings: object) -> Manifest:
    run = RunSettings(**settings)  # type: ignore[arg-type]
    return await create_run(
        store, model, run, program="m:f", clock=SystemClock(), rng=random.Random(0)
    )
