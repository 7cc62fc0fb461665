"""What a simulated learner trains."""

from typing import Protocol

from torch import nn


class Trainee(Protocol):
    """A model, and inner steps on it."""

    @property
    def model(self) -> nn.Module:
        """The model, changed in place."""
        ...

    def step(self, *, spoil: bool = False) -> int:
        """Take an inner step; return its tokens. ``spoil``: into NaN, as one that diverges."""
        ...
