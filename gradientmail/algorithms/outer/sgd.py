"""Stochastic gradient descent and its two momenta, in torch's form."""

from torch import Tensor

from gradientmail.algorithms.outer.base import FIRST, Rate, Share, State, Turn, zeros
from gradientmail.choices import Choice
from gradientmail.codecs import native


class Sgd(Choice, frozen=True):
    """``theta -= lr d``; at 1.0 the mean of the learners' parameters (Local SGD, FedAvg).

    Source: Local SGD (arXiv 1805.09767), FedAvg (arXiv 1602.05629).

    Attributes:
        lr: Learning rate.
    """

    lr: Rate = 1.0

    @property
    def sections(self) -> tuple[str, ...]:
        """See ``OuterOptimizer.sections``."""
        return ()

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """See ``OuterOptimizer.init``."""
        return zeros(self.sections, like)

    def update(
        self,
        theta: Tensor,
        gradient: Tensor,
        state: State,  # noqa: ARG002 - see OuterOptimizer
        turn: Turn = FIRST,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See ``OuterOptimizer.update``."""
        return theta - gradient * (self.lr * turn.scale), {}


class HeavyBall(Choice, frozen=True):
    """``m = momentum m + d``, then ``theta -= lr m``.

    Source: Polyak; SlowMo (arXiv 1910.00643), FedAvgM (arXiv 1909.06335).

    Attributes:
        lr: Learning rate.
        momentum: What m keeps from step to step.
    """

    lr: Rate = 0.7
    momentum: Share = 0.9

    @property
    def sections(self) -> tuple[str, ...]:
        """See ``OuterOptimizer.sections``."""
        return ("momentum",)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """See ``OuterOptimizer.init``."""
        return zeros(self.sections, like)

    def update(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn = FIRST
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See ``OuterOptimizer.update``."""
        momentum = state["momentum"] * self.momentum + gradient
        return theta - momentum * (self.lr * turn.scale), {"momentum": momentum}


class Nesterov(HeavyBall, frozen=True):
    """``m = momentum m + d``, then ``theta -= lr (d + momentum m)``.

    Source: ``torch.optim.SGD(nesterov=True)``; DiLoCo (arXiv 2311.08105).

    Attributes:
        lr: Learning rate.
        momentum: What m keeps from step to step.

    Example:
        >>> import torch
        >>> outer = Nesterov(lr=0.7, momentum=0.9)
        >>> outer.update(torch.ones(1), torch.tensor([0.5]), outer.init(torch.ones(1)))
        (tensor([0.3350]), {'momentum': tensor([0.5000])})
    """

    def update(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn = FIRST
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See ``OuterOptimizer.update``."""
        rate = self.lr * turn.scale
        found = native.nesterov(theta, gradient, state["momentum"], self.momentum, rate)
        if found is not None:
            return found[0], {"momentum": found[1]}
        momentum = state["momentum"] * self.momentum + gradient
        step = gradient + momentum * self.momentum
        return theta - step * rate, {"momentum": momentum}
