"""What every outer optimizer is: state vectors in, one step out, elementwise and pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import msgspec
import torch
from torch import Tensor

Rate = Annotated[float, msgspec.Meta(gt=0.0, le=100.0)]
"""A learning rate."""

Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]
"""What a moving average keeps."""

State = Mapping[str, Tensor]
"""Vectors as long as the parameters, by name."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Which of a fragment's outer steps this is.

    Attributes:
        step: Outer steps taken before it; rounds in which nothing counted take none.
        scale: What the learning rate is multiplied with: schedule and guard.
    """

    step: int = 0
    scale: float = 1.0


FIRST: Final = Turn()


class OuterOptimizer(Protocol):
    """A rule for the step of the committed parameters along a merged pseudo-gradient.

    Pure and elementwise: a step of a chunk is the chunk of the step, bit for bit. Multiplications
    and additions stay separate: a fused one rounds differently elsewhere.
    """

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of the state vectors, each as long as the parameters."""
        ...

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """Return the state before the first step, of the shape of ``like``."""
        ...

    def update(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn = FIRST
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the parameters and the state after one step along ``-gradient``."""
        ...


def zeros(sections: tuple[str, ...], like: Tensor) -> dict[str, Tensor]:
    """Return a state of zeros."""
    return {name: torch.zeros_like(like) for name in sections}
