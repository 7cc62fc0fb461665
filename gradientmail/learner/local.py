"""What of a model stays with its learner: no commit can give it back."""

from collections.abc import Container

import torch
from torch import Tensor, nn

from gradientmail.learner.parameters import bare_names, listed, live_tensors
from gradientmail.logs import FieldLogger


class LocalTensors:
    """The live tensors that training changes and nobody exchanges, and their last good values.

    Let be is what is not saved either, and what begins as infinity, as a running minimum does.

    Args:
        exchanged: Canonical names of those that a commit can give back.
    """

    def __init__(self, model: nn.Module, exchanged: Container[str]) -> None:
        live = live_tensors(model)
        others = {id(tensor) for name, tensor in live.items() if name in exchanged}
        saved = set(map(bare_names(model), model.state_dict()))
        self._live = {
            name: tensor
            for name, tensor in live.items()
            if name in saved and id(tensor) not in others and _is_trained(tensor)
            if _is_finite(tensor)
        }
        self._kept: dict[str, Tensor] = {}
        self._kept_at: dict[str, int] = {}
        self.keep(0)

    def keep(self, step: int) -> None:
        """Take the values that are finite for the last good ones."""
        good = {
            name: tensor.detach().to("cpu", copy=True)
            for name, tensor in self._live.items()
            if _is_finite(tensor)
        }
        self._kept |= good
        self._kept_at |= dict.fromkeys(good, step)

    def poisoned(self) -> list[str]:
        """Return the names of those that became NaN or infinite."""
        return [name for name in self._live if not _is_finite(self._live[name])]

    @torch.no_grad()
    def go_back(self, step: int, log: FieldLogger) -> bool:
        """Put those back at their last good values, and say so; False where there are none."""
        poisoned = self.poisoned()
        for name in poisoned:
            self._live[name].copy_(self._kept[name])
        for kept_at in sorted({self._kept_at[name] for name in poisoned}):
            log.error(
                "%s (not exchanged) NaN or infinite after step %d: back at the values of step %d; "
                "lower the learning rate or clip gradients if this repeats",
                listed([name for name in poisoned if self._kept_at[name] == kept_at]),
                step,
                kept_at,
            )
        return bool(poisoned)


def _is_trained(tensor: Tensor) -> bool:
    """Whether training may change it, by a gradient or, as a buffer, in the forward pass."""
    is_frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
    return tensor.is_floating_point() and tensor.layout == torch.strided and not is_frozen


def _is_finite(tensor: Tensor) -> bool:
    judged = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # float8 lacks isfinite
    return bool(torch.isfinite(judged).all())
