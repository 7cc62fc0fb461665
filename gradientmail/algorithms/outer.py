"""The outer step: pure and elementwise, so that it runs on any chunk with the same bits."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class OuterOptimizer:
    """SGD with momentum in torch's form: ``m = mu m + d``, then ``theta -= lr m``.

    Args:
        lr: Outer learning rate.
        momentum: mu; 0.0 keeps no state.
        nesterov: Whether the step looks ahead: ``theta -= lr (d + mu m)``.

    Source: ``torch.optim.SGD``; DiLoCo (arXiv 2311.08105), SlowMo (arXiv 1910.00643).

    Example:
        >>> import torch
        >>> outer = OuterOptimizer(lr=0.7, momentum=0.9, nesterov=True)
        >>> outer.update(torch.ones(1), torch.tensor([0.5]), {"momentum": torch.zeros(1)})
        (tensor([0.3350]), {'momentum': tensor([0.5000])})
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False

    @property
    def sections(self) -> tuple[str, ...]:
        """Names of the state vectors, each as long as the parameters."""
        return ("momentum",) if self.momentum else ()

    def update(
        self, theta: Tensor, gradient: Tensor, state: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the parameters and the state after one step along ``-gradient``.

        Multiplications and additions stay separate: a fused one rounds differently elsewhere.
        """
        if not self.momentum:
            return theta - gradient * self.lr, {}
        momentum = state["momentum"] * self.momentum + gradient
        step = gradient + momentum * self.momentum if self.nesterov else momentum
        return theta - step * self.lr, {"momentum": momentum}
