"""Programs small enough to train in a test."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn


class Batches:
    """Endless random batches that know where they are; ``end`` ends them."""

    def __init__(self, seed: int, end: int | None = None) -> None:
        self.seed, self.end, self.taken = seed, end, 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.taken != self.end:
            self.taken += 1
            generator = torch.Generator().manual_seed(self.seed + self.taken)
            yield torch.randn(4, 8, generator=generator)

    def state_dict(self) -> Any:
        return {"taken": self.taken}

    def load_state_dict(self, state: Any) -> None:
        self.taken = state["taken"]


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return (model(batch) - batch.sum(1, keepdim=True)).square().mean()


def tiny(seed: int, data_seed: int):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return model, optimizer, Batches(data_seed), loss


def wrong() -> int:
    return 3


def other(seed: int):
    model = nn.Sequential(nn.Linear(9, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), Batches(seed), loss
