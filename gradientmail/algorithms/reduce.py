"""Sums whose bits do not depend on the machine: fixed order, elementwise IEEE operations only.

A library's ``sum`` or ``norm`` adds in an order that follows the vector width of the CPU, so two
closers would disagree in the last bit. Here a block of 64 is summed by halving in float64, and the
block sums by ``math.fsum``, which rounds once whatever the order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Geometry:
    """Where the tensors of a fragment lie in its flat vector.

    Attributes:
        names: One per slot, in layout order.
        starts: First element of each slot, a multiple of 64; a slot ends where the next begins.
        parameters_end: Where float buffers begin; a multiple of 4096.
        numel: Length of the flat vector, a multiple of 4096.
    """

    names: tuple[str, ...]
    starts: tuple[int, ...]
    parameters_end: int
    numel: int

    def ends(self) -> tuple[int, ...]:
        """Return where each slot ends, padding included."""
        return (*self.starts[1:], self.numel)

    def per_block(self, values: Sequence[float]) -> Tensor:
        """Spread one value per slot over the slot's blocks: float32 [numel / 64]."""
        blocks = torch.tensor(
            [(end - start) // BLOCK for start, end in zip(self.starts, self.ends(), strict=True)]
        )
        return torch.tensor(values, dtype=torch.float32).repeat_interleave(blocks)


class SquareSums:
    """Accumulates the sum of squares of every slot, chunk by chunk.

    >>> sums = SquareSums(Geometry(("w",), (0,), 4096, 4096))
    >>> sums.add(0, torch.full((4096,), 2.0))
    >>> sums.norms()
    [128.0]
    """

    def __init__(self, geometry: Geometry) -> None:
        self._spans = list(zip(geometry.starts, geometry.ends(), strict=True))
        self._partial: list[list[float]] = [[] for _ in self._spans]

    def add(self, start: int, chunk: Tensor) -> None:
        """Add elements ``[start, start + len(chunk))``; both are multiples of 64."""
        blocks = _block_square_sums(chunk)
        stop = start + chunk.numel()
        for partial, (low, high) in zip(self._partial, self._spans, strict=True):
            first, last = max(low, start), min(high, stop)
            if first < last:
                inside = blocks[(first - start) // BLOCK : (last - start) // BLOCK]
                partial.append(math.fsum(inside))

    def squares(self) -> list[float]:
        """Return the sum of squares of each slot."""
        return [math.fsum(partial) for partial in self._partial]

    def norms(self) -> list[float]:
        """Return the L2 norm of each slot."""
        return [math.sqrt(square) for square in self.squares()]


def _block_square_sums(chunk: Tensor) -> list[float]:
    half = chunk.to(torch.float64)
    half = (half * half).view(-1, BLOCK)
    while half.shape[1] > 1:
        width = half.shape[1] // 2
        half = half[:, :width] + half[:, width:]
    sums: list[float] = half.flatten().tolist()
    return sums
