"""Any elementwise class of ``torch.optim`` as the outer optimizer, by its name.

What an optimizer keeps of each element becomes a section of the version's outer payload; what it
keeps beside that (its count of steps) follows from how many steps were taken.
"""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import torch
from torch import Tensor, nn

from gradientmail.algorithms.outer.base import FIRST, State, Turn
from gradientmail.config import nearest
from gradientmail.errors import SettingsError

PREFIX: Final = "torch.optim."

_SLICE: Final = 32_768
"""Elements that torch gives to one thread, whatever there is: so the bits do not depend on it."""

_PROBE: Final = 128
_FIXED: Final = {"foreach": False, "fused": False, "capturable": False, "differentiable": False}


@dataclass(frozen=True)
class TorchOptimizer:
    """``torch.optim.NAME`` on the pseudo-gradient.

    The bits are those of torch on this kind of machine: unlike machines, or versions of torch, may
    differ in the last one, and ``gradientmail verify`` would say so. ASGD and Rprop keep their
    rate in their state: no schedule reaches them after the first step.

    Args:
        name: Name of the class, such as ``AdamW``.
        settings: Its arguments, without the parameters.

    Raises:
        SettingsError: there is no such class, it does not take these arguments, or a step of a
            part of a vector is not the part of the step (LBFGS, Adafactor, Muon).

    Example:
        >>> TorchOptimizer("AdamW", {"lr": 0.1}).sections
        ('exp_avg', 'exp_avg_sq')
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            whole = self._probe(0, _PROBE)
            parts = torch.cat([self._probe(0, _PROBE // 2), self._probe(_PROBE // 2, _PROBE)])
            alike = torch.equal(whole, parts) and all(self._keeps_vectors())
        except (TypeError, ValueError, RuntimeError) as error:
            raise SettingsError(
                f"outer = '{PREFIX}{self.name}': it cannot take a step by a gradient alone, with "
                f"these settings: {error}"
            ) from error
        if not alike:
            raise SettingsError(
                f"outer = '{PREFIX}{self.name}' looks at more than one element at a time, and a "
                "version is made chunk by chunk: choose an elementwise one, such as AdamW"
            )

    @property
    def sections(self) -> tuple[str, ...]:
        """See ``OuterOptimizer.sections``."""
        return tuple(self._initial)

    def init(self, like: Tensor) -> dict[str, Tensor]:
        """Return the state of one that has seen a gradient of zero."""
        return {name: torch.full_like(like, value) for name, value in self._initial.items()}

    def update(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn = FIRST
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See ``OuterOptimizer.update``."""
        following = torch.empty_like(theta)
        kept = {name: torch.empty_like(theta) for name in self.sections}
        for low in range(0, theta.numel(), _SLICE):
            part = slice(low, min(low + _SLICE, theta.numel()))
            own = {name: state[name][part] for name in self.sections} if turn.step else {}
            following[part], after = self._step(theta[part], gradient[part], own, turn)
            for name, vector in kept.items():
                vector[part] = after[name]
        return following, kept

    # -- one optimizer ---------------------------------------------------------------------

    def _step(
        self, theta: Tensor, gradient: Tensor, state: State, turn: Turn
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return parameters and state after a step; before the first there is no state."""
        parameter, optimizer = self._made(theta)
        if turn.step:
            vectors = {name: vector.clone() for name, vector in state.items()}
            optimizer.state[parameter] = {**vectors, **self._beside(turn.step)}
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * turn.scale
        parameter.grad = gradient.clone()
        optimizer.step()
        return parameter.detach(), dict(optimizer.state[parameter])

    def _made(self, theta: Tensor) -> tuple[nn.Parameter, torch.optim.Optimizer]:
        parameter = nn.Parameter(theta.clone())
        accepted = inspect.signature(self._kind).parameters
        fixed = {name: value for name, value in _FIXED.items() if name in accepted}
        return parameter, self._kind([parameter], **{**self.settings, **fixed})

    @cached_property
    def _kind(self) -> Any:  # noqa: ANN401 - the arguments differ from class to class
        kinds = {
            name: kind
            for name, kind in vars(torch.optim).items()
            if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
        }
        kinds.pop("Optimizer", None)
        if self.name not in kinds:
            raise SettingsError(f"unknown outer '{PREFIX}{self.name}'{nearest(self.name, kinds)}")
        return kinds[self.name]

    # -- what it keeps ---------------------------------------------------------------------

    @cached_property
    def _initial(self) -> dict[str, float]:
        """What each state vector is filled with by a gradient of zero."""
        found = self._after_zeros(1)
        return {
            name: float(value[0]) for name, value in found.items() if _is_vector(value, _PROBE)
        }

    def _beside(self, steps: int) -> dict[str, Any]:
        """Return what it keeps beside vectors after ``steps`` steps, whatever the gradients."""
        names = {n for n, v in self._replayed(1).items() if not _is_vector(v, _PROBE)}
        if names == {"step"}:
            return {"step": torch.tensor(float(steps))}
        found = self._replayed(steps) if names else {}
        return {name: deepcopy(found[name]) for name in names}  # torch counts in place

    @cached_property
    def _replayed(self) -> Callable[[int], dict[str, Any]]:
        """``_after_zeros``, once for all ranges of a round."""
        return lru_cache(maxsize=16)(self._after_zeros)

    def _after_zeros(self, steps: int) -> dict[str, Any]:
        parameter, optimizer = self._made(torch.zeros(_PROBE))
        for _ in range(steps):
            parameter.grad = torch.zeros(_PROBE)
            optimizer.step()
        return dict(optimizer.state[parameter])

    def _keeps_vectors(self) -> list[bool]:
        """Return of everything it keeps whether that is one number, or one for each element."""
        return [
            not isinstance(value, Tensor) or value.dim() == 0 or _is_vector(value, _PROBE)
            for value in self._after_zeros(1).values()
        ]

    def _probe(self, low: int, high: int) -> Tensor:
        """Take two steps with a part of a vector."""
        theta, *gradients = torch.sin(torch.arange(3.0 * _PROBE)).view(3, _PROBE)
        parameter, optimizer = self._made(theta[low:high])
        for gradient in gradients:
            parameter.grad = gradient[low:high].clone()
            optimizer.step()
        return parameter.detach()


def _is_vector(value: object, numel: int) -> bool:
    return isinstance(value, Tensor) and value.shape == (numel,)
