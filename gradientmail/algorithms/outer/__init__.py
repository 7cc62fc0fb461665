"""Outer optimizers: the step of the committed parameters along a merged pseudo-gradient."""

from collections.abc import Mapping
from typing import Any, Final

from gradientmail.algorithms.outer.adaptive import Adagrad, Adam, Yogi
from gradientmail.algorithms.outer.base import FIRST, OuterOptimizer, State, Turn
from gradientmail.algorithms.outer.delayed import DelayedNesterov
from gradientmail.algorithms.outer.sgd import HeavyBall, Nesterov, Sgd
from gradientmail.algorithms.outer.torch_optim import PREFIX, TorchOptimizer
from gradientmail.choices import Choices

__all__ = [
    "FIRST",
    "OUTERS",
    "Adagrad",
    "Adam",
    "DelayedNesterov",
    "HeavyBall",
    "Nesterov",
    "OuterOptimizer",
    "Sgd",
    "State",
    "TorchOptimizer",
    "Turn",
    "Yogi",
]


class _Outers(Choices[OuterOptimizer]):
    def make(self, name: str, settings: Mapping[str, Any]) -> OuterOptimizer:
        if name.startswith(PREFIX):
            return TorchOptimizer(name.removeprefix(PREFIX), dict(settings))
        return super().make(name, settings)

    def describe(self, value: OuterOptimizer) -> tuple[str, dict[str, Any]]:
        if isinstance(value, TorchOptimizer):
            return f"{PREFIX}{value.name}", dict(value.settings)
        return super().describe(value)


OUTERS: Final = _Outers(
    "outer",
    {
        "sgd": Sgd,
        "heavy-ball": HeavyBall,
        "nesterov": Nesterov,
        "adam": Adam,
        "yogi": Yogi,
        "adagrad": Adagrad,
        "delayed-nesterov": DelayedNesterov,
    },
)
"""By the name that ``outer`` takes; besides, ``torch.optim.NAME``."""
