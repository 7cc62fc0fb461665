"""Outer steps that scale each element by its own history: FedAdam, FedYogi, FedAdagrad.

``m = beta1 m + (1 - beta1) d``, then ``theta -= lr m / (sqrt(v) + tau)``. The first steps are not
corrected: v begins at ``tau^2`` instead. They differ in how v takes in ``d^2``.

Source: Adaptive Federated Optimization (arXiv 2003.00295), Algorithm 2.
"""

from typing import Annotated

import msgspec
import torch
from torch import Tensor

from gradientmail.algorithms.outer.base import FIRST, Rate, Share, State, Turn
from gradientmail.choices import Choice

Tau = Annotated[float, msgspec.Meta(ge=1e-12, le=1.0)]


class _Adaptive(Choice, frozen=True):
    lr: Rate = 0.1
    beta1: Share = 0.9
    tau: Tau = 1e-3

    @property
    def sections(self) -> tuple[str, ...]:
        """See ``OuterOptimizer.sections``."""
        return ("momentum", "variance") if self.beta1 else ("variance",)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """See ``OuterOptimizer.init``."""
        begin = {"momentum": 0.0, "variance": self.tau * self.tau}
        return {name: torch.full_like(like, begin[name]) for name in self.sections}

    def update(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn = FIRST
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See ``OuterOptimizer.update``."""
        following = {"variance": self._variance(state["variance"], gradient * gradient)}
        direction = gradient
        if self.beta1:
            direction = state["momentum"] * self.beta1 + gradient * (1.0 - self.beta1)
            following["momentum"] = direction
        step = direction / (following["variance"].sqrt() + self.tau)
        return theta - step * (self.lr * turn.scale), following

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        raise NotImplementedError


class Adam(_Adaptive, frozen=True):
    """``v = beta2 v + (1 - beta2) d^2``.

    Source: FedAdam (arXiv 2003.00295).

    Attributes:
        lr: Learning rate.
        beta1: What m keeps from step to step.
        tau: Added to ``sqrt(v)``; the size of a step that is not adaptive any more.
        beta2: What v keeps from step to step.
    """

    beta2: Share = 0.99

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        return variance * self.beta2 + square * (1.0 - self.beta2)


class Yogi(_Adaptive, frozen=True):
    """``v = v - (1 - beta2) d^2 sign(v - d^2)``: v forgets large gradients only slowly.

    Source: FedYogi (arXiv 2003.00295).

    Attributes:
        lr: Learning rate.
        beta1: What m keeps from step to step.
        tau: Added to ``sqrt(v)``; the size of a step that is not adaptive any more.
        beta2: How slowly v follows.
    """

    beta2: Share = 0.99

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        return variance - square * (1.0 - self.beta2) * torch.sign(variance - square)


class Adagrad(_Adaptive, frozen=True):
    """``v = v + d^2``.

    Source: FedAdagrad (arXiv 2003.00295).

    Attributes:
        lr: Learning rate.
        beta1: What m keeps from step to step; 0 keeps none.
        tau: Added to ``sqrt(v)``; the size of a step that is not adaptive any more.
    """

    beta1: Share = 0.0

    def _variance(self, variance: Tensor, square: Tensor) -> Tensor:
        return variance + square
