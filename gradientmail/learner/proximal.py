"""FedProx: inner steps are pulled back to the anchor they began from.

Source: FedProx (arXiv 1812.06127): each learner minimizes its loss plus
``mu / 2 |theta - anchor|^2``, whose gradient is ``mu (theta - anchor)``.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from gradientmail.errors import SettingsError
from gradientmail.learner.parameters import FragmentTensors


class Anchored(Protocol):
    """A fragment and the values its steps began from."""

    @property
    def tensors(self) -> FragmentTensors:
        """The live tensors."""
        ...

    @property
    def anchor(self) -> Tensor:
        """Flat float32."""
        ...


class Anchors(Protocol):
    """What holds the fragments of a learner."""

    @property
    def fragments(self) -> Sequence[Anchored]:
        """All of them, as they are now."""
        ...


def pull_back(anchors: Anchors, mu: float) -> None:
    """Add ``mu (theta - anchor)`` to the gradient of every parameter that has one."""
    for fragment in anchors.fragments:
        for tensor, anchor in fragment.tensors.beside(fragment.anchor):
            if tensor.grad is not None:
                tensor.grad.add_(tensor.detach() - anchor.to(tensor.dtype), alpha=mu)


def hook_proximal(
    optimizer: torch.optim.Optimizer | None, anchors: Anchors, mu: float
) -> RemovableHandle | None:
    """Pull back before each step of ``optimizer`` until the handle is removed; None at mu 0.

    Raises:
        SettingsError: there is no optimizer to hook.
    """
    if not mu:
        return None
    if optimizer is None:
        raise SettingsError(
            f"the run has proximal = {mu:g}, which changes gradients before each step: give the "
            "learner its optimizer, gm.Learner(url, model, optimizer=optimizer)"
        )

    def before_step(*_: Any) -> None:  # noqa: ANN401 - a hook's arguments are torch's
        pull_back(anchors, mu)

    return optimizer.register_step_pre_hook(before_step)
