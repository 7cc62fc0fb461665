"""Delayed Nesterov: momentum for contributions that arrive one by one."""

from typing import Annotated

import msgspec
import torch
from torch import Tensor

from gradientmail.algorithms.outer.base import FIRST, Rate, Share, State, Turn, zeros
from gradientmail.choices import Choice


class DelayedNesterov(Choice, frozen=True):
    """Plain steps of a share of each arrival, and a momentum step every ``arrivals``.

    With N arrivals, c of the momentum in each and b kept of it: ``acc += d``; at every N-th step
    ``m = b m + acc / N; theta -= lr ((1 - c N + c) b m + d / N); acc = 0``, at the others
    ``theta -= lr (c b m + d / N)``. An arrival is a round in which something counted.

    Source: Asynchronous Local-SGD (arXiv 2401.09135), Algorithm 3.

    Attributes:
        lr: Learning rate.
        momentum: What m keeps from one momentum step to the next (b).
        arrivals: Rounds from one momentum step to the next (N); about the number of learners.
        early: How much of the momentum each arrival takes part in (c); at most 1 / arrivals.

    Raises:
        ValueError: ``early`` is above ``1 / arrivals``.
    """

    lr: Rate = 0.7
    momentum: Share = 0.9
    arrivals: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 4
    early: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0

    def __post_init__(self) -> None:
        if self.early * self.arrivals > 1.0:
            raise ValueError(
                f"early = {self.early:g} with arrivals = {self.arrivals}: set early to at most "
                f"{1 / self.arrivals:.6g}, or more than the whole momentum would be spent"
            )

    @property
    def sections(self) -> tuple[str, ...]:
        """See ``OuterOptimizer.sections``."""
        return ("momentum", "accumulated")

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """See ``OuterOptimizer.init``."""
        return zeros(self.sections, like)

    def update(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn = FIRST
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See ``OuterOptimizer.update``."""
        momentum, accumulated = state["momentum"], state["accumulated"] + gradient
        share = self.early
        if (turn.step + 1) % self.arrivals == 0:
            momentum = momentum * self.momentum + accumulated / self.arrivals
            accumulated = torch.zeros_like(accumulated)
            share = 1.0 - self.early * self.arrivals + self.early
        step = momentum * (share * self.momentum) + gradient / self.arrivals
        following = {"momentum": momentum, "accumulated": accumulated}
        return theta - step * (self.lr * turn.scale), following
