"""Sums whose bits do not depend on the machine: fixed order, elementwise IEEE operations only.

A library's ``sum`` or ``norm`` adds in an order that follows the vector width of the CPU, so two
closers would disagree in the last bit. Here a block of 64 is summed by halving in float64, and the
block sums by ``math.fsum``, which rounds once whatever the order.
"""

import bisect
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from gradientmail.codecs.layout import ALIGN, FragmentLayout

BLOCK: Final = ALIGN


def slot_spans(layout: FragmentLayout) -> list[tuple[int, int]]:
    """Return where each slot starts and where the next one does: its padding is its own."""
    starts = [slot.offset for slot in layout.slots]
    return list(zip(starts, [*starts[1:], layout.numel], strict=True))


def per_block(layout: FragmentLayout, values: Sequence[float], start: int, stop: int) -> Tensor:
    """Spread one value per slot over the blocks of ``[start, stop)``: float32 [blocks, 1].

    Broadcast over a chunk seen as [blocks, 64], it scales every tensor by its own value.
    """
    offsets = [slot.offset for slot in layout.slots]
    first = bisect.bisect_right(offsets, start) - 1
    last = bisect.bisect_left(offsets, stop)
    edges = [start, *offsets[first + 1 : last], stop]
    blocks = torch.tensor([(high - low) // BLOCK for low, high in pairwise(edges)])
    spread = torch.tensor(values[first:last], dtype=torch.float32).repeat_interleave(blocks)
    return spread.unsqueeze(1)


class SquareSums:
    """Accumulates the sum of squares of every slot, chunk by chunk.

    >>> sums = SquareSums(layout([("w", 4096)]))
    >>> sums.add(0, torch.full((4096,), 2.0))
    >>> sums.norms()
    [128.0]
    """

    def __init__(self, layout: FragmentLayout) -> None:
        self._spans = slot_spans(layout)
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
