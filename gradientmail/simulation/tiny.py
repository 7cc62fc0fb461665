"""A model of a few tensors, and inner steps that only move it about."""

import random

import torch
from torch import Tensor, nn

STEP_SIZE = 0.01
TOKENS = 100


class TinyModel(nn.Module):
    """Enough of a model for every codec and every rule: matrices, a scalar, a float buffer."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        shapes = ((4, 16), (40,), (), (3, 3, 3))
        self.weights = nn.ParameterList([torch.ones(shape) for shape in shapes])
        self.register_buffer("seen", torch.zeros(8))


class Stepper:
    """A ``Trainee``: inner steps on ``model`` of seeded noise in place of gradients."""

    def __init__(self, model: TinyModel, seed: int) -> None:
        self.model = model
        self._chance = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def step(self, *, spoil: bool = False) -> int:
        """See ``Trainee.step``."""
        sizes = [parameter.numel() for parameter in self.model.weights]
        noise = torch.split(torch.randn(sum(sizes), generator=self._chance), sizes)
        for parameter, part in zip(self.model.weights, noise, strict=True):
            parameter.add_(part.view_as(parameter), alpha=STEP_SIZE)
        self.model.seen.mul_(0.9).add_(0.1)
        if spoil:
            self.model.weights[0].fill_(float("nan"))
        return TOKENS


def tiny_trainee(rng: random.Random) -> Stepper:
    """Return a stepper on a fresh tiny model."""
    return Stepper(TinyModel(), rng.getrandbits(60))
