"""Sums whose bits do not depend on the machine: fixed order, IEEE operations only.

A library's ``sum`` or ``norm`` adds in an order that follows the vector width of the CPU (and the
built-in ``sum`` and ``math.hypot`` changed between versions of Python), so two closers would
disagree in the last bit. Here a block of 64 is summed by halving in float64; the blocks of a tile,
and the tiles, by ``math.fsum``, which rounds once whatever the order.
"""

import bisect
import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from gradientmail.codecs.layout import ALIGN, TILE, FragmentLayout

BLOCK: Final = ALIGN


def root_of_squares(norms: Iterable[float | None]) -> float:
    """Return the L2 norm of a whole, given those of its parts; an absent part (None) is zero.

    >>> root_of_squares([3.0, None, 4.0])
    5.0
    """
    return math.sqrt(math.fsum(norm * norm for norm in norms if norm is not None))


def per_block(layout: FragmentLayout, values: Sequence[float], start: int, stop: int) -> Tensor:
    """Spread one value per slot over the blocks of ``[start, stop)``: float32 [blocks, 1].

    Broadcast over a chunk seen as [blocks, 64], it scales every tensor by its own value. Padding
    takes the value of the slot before it.
    """
    offsets = [slot.offset for slot in layout.slots]
    inside = _slots_within(offsets, start, stop)
    edges = [start, *offsets[inside.start + 1 : inside.stop], stop]
    blocks = torch.tensor([(high - low) // BLOCK for low, high in pairwise(edges)])
    spread = torch.tensor(values[inside.start : inside.stop], dtype=torch.float32)
    return spread.repeat_interleave(blocks).unsqueeze(1)


class SquareSums:
    """Accumulates the sum of squares of every slot, chunk by chunk.

    The result has the same bits however the vector is cut at multiples of ``TILE``, and in
    whatever order the chunks come. Padding counts to the slot before it. Memory: one number for
    each tile, and for each slot that shares one.

    >>> from gradientmail.codecs.layout import layout
    >>> sums = SquareSums(layout([("w", 4096)]))
    >>> sums.add(0, torch.full((4096,), 2.0))
    >>> sums.norms()
    [128.0]
    """

    def __init__(self, layout: FragmentLayout) -> None:
        self._offsets = [slot.offset for slot in layout.slots]
        self._ends = [*self._offsets[1:], layout.numel]
        self._tiles = [array("d") for _ in layout.slots]

    def add(self, start: int, chunk: Tensor) -> None:
        """Add elements ``[start, start + len(chunk))``; both are multiples of ``TILE``."""
        blocks = _block_square_sums(chunk)
        stop = start + chunk.numel()
        for slot in _slots_within(self._offsets, start, stop):
            low, high = max(self._offsets[slot], start), min(self._ends[slot], stop)
            borders = range(low // TILE * TILE + TILE, high, TILE)
            for left, right in pairwise([low, *borders, high]):
                inside = blocks[(left - start) // BLOCK : (right - start) // BLOCK]
                self._tiles[slot].append(math.fsum(inside))

    def squares(self) -> list[float]:
        """Return the sum of squares of each slot."""
        return [math.fsum(tiles) for tiles in self._tiles]

    def norms(self) -> list[float]:
        """Return the L2 norm of each slot."""
        return [math.sqrt(square) for square in self.squares()]


def _slots_within(offsets: Sequence[int], start: int, stop: int) -> range:
    """Return the slots that have a part in ``[start, stop)``; empty ones between them too."""
    return range(bisect.bisect_right(offsets, start) - 1, bisect.bisect_left(offsets, stop))


def _block_square_sums(chunk: Tensor) -> list[float]:
    """Return the sum of squares of each block. A float32's square is exact in float64."""
    half = chunk.to(torch.float64).view(-1, BLOCK)
    half = half.mul_(half)
    while half.shape[1] > 1:
        width = half.shape[1] // 2
        half = half[:, :width] + half[:, width:]
    sums: list[float] = half.flatten().tolist()
    return sums
