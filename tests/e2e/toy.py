"""A small model with everything a state has (dropout, statistics, moments), and points to fit."""

from typing import Any, Self

import torch
from torch import Tensor, nn

FEATURES = 20
BATCH = 32


class Points:
    """An endless stream of batches ``(x, y)`` that knows where it is."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        x = torch.randn(BATCH, FEATURES, generator=self._generator)
        return x, x[:, :3].sum(1, keepdim=True)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])


def toy_model(seed: int = 0, *, dropout: float = 0.0) -> nn.Module:
    """Two blocks, so that a strided plan has what to deal; ``seed`` draws the initial values."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Sequential(nn.Linear(FEATURES, 48), nn.BatchNorm1d(48), nn.Tanh()),
        nn.Sequential(nn.Dropout(dropout), nn.Linear(48, 1)),
    )
    torch.set_rng_state(generator_state)
    return model


def toy_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, y = batch
    return nn.functional.mse_loss(model(x), y)


@torch.no_grad()
def held_out_loss(model: nn.Module) -> float:
    """Mean squared error on points no learner trains on."""
    was_training = model.training
    model.eval()
    points = Points(seed=10_000)
    loss = sum(float(toy_loss(model, next(points))) for _ in range(20)) / 20
    model.train(was_training)
    return loss
