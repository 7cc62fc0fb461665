"""A model of a few tensors, and inner steps that only move it about."""

import torch
from torch import Tensor, nn

STEP_SIZE = 0.01


class TinyModel(nn.Module):
    """Enough of a model for every codec and every rule: matrices, a scalar, a float buffer."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        shapes = ((4, 16), (40,), (), (3, 3, 3))
        self.weights = nn.ParameterList([torch.ones(shape) for shape in shapes])
        self.register_buffer("seen", torch.zeros(8))


class Stepper:
    """Takes inner steps on ``model``: seeded noise in place of gradients."""

    def __init__(self, model: TinyModel, seed: int) -> None:
        self._model = model
        self._chance = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, *, spoil: bool = False) -> None:
        """Move every parameter a little; ``spoil``: into NaN, as a run that diverges."""
        for parameter in self._model.weights:
            noise = torch.randn(parameter.shape, generator=self._chance)
            parameter.add_(noise, alpha=STEP_SIZE)
        self._model.seen.mul_(0.9).add_(0.1)
        if spoil:
            self._model.weights[0].fill_(float("nan"))
