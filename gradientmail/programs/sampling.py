"""Endless random batches that know where they are."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import torch
from torch import Tensor

Batch = TypeVar("Batch")


class RandomBatches(Generic[Batch]):
    """Batches ``take(indices)`` of ``size`` indices drawn uniformly below ``population``.

    The position is the state of its generator, so a restarted learner draws what it would have.
    """

    def __init__(
        self, population: int, take: Callable[[Tensor], Batch], *, size: int, seed: int
    ) -> None:
        self._population = population
        self._take = take
        self._size = size
        self._generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        drawn = torch.randint(self._population, (self._size,), generator=self._generator)
        return self._take(drawn)

    def state_dict(self) -> dict[str, Tensor]:
        """See ``Positioned.state_dict``."""
        return {"generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See ``Positioned.load_state_dict``."""
        self._generator.set_state(state["generator"])
