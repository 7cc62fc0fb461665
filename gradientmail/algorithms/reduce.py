"""Sums whose bits do not depend on the machine: fixed order, IEEE operations only.

A library's ``sum`` or ``norm`` adds in an order that follows the vector width of the CPU (and the
built-in ``sum`` and ``math.hypot`` changed between versions of Python), so two closers would
disagree in the last bit. Here a block of 64, and the 64 blocks of a tile, are summed in pairs, and
pairs of pairs, in float64; the tiles by ``math.fsum``, which rounds once whatever the order.
"""

import bisect
import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from torch import Tensor

from gradientmail.codecs import native
from gradientmail.codecs.coarse import halved_sum, nimble
from gradientmail.codecs.layout import ALIGN, TILE, FragmentLayout

BLOCK: Final = ALIGN

_BLOCKS: Final = TILE // BLOCK


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
    blocks = [(high - low) // BLOCK for low, high in pairwise(edges)]
    spread = np.array(values[inside.start : inside.stop], np.float32)
    return torch.from_numpy(spread.repeat(blocks)).unsqueeze(1)


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
        self._offsets = [slot.offset // BLOCK for slot in layout.slots]
        self._ends = [*self._offsets[1:], layout.numel // BLOCK]
        self._tiles = [array("d") for _ in layout.slots]

    def add(self, start: int, chunk: Tensor) -> None:
        """Add elements ``[start, start + len(chunk))``; both are multiples of ``TILE``."""
        self.add_blocks(start, block_squares(chunk))

    def add_blocks(self, start: int, squares: Tensor) -> None:
        """Add what ``block_squares`` gives of elements from ``start`` on."""
        first = start // BLOCK
        tiles = squares.view(-1, _BLOCKS)
        for slot in _slots_within(self._offsets, first, first + len(squares)):
            low = max(self._offsets[slot] - first, 0)
            high = min(self._ends[slot] - first, len(squares))
            if low < high:
                inside = tiles[low // _BLOCKS : -(-high // _BLOCKS)]
                if low % _BLOCKS or high % _BLOCKS:
                    inside = inside.clone()
                    inside[0, : low % _BLOCKS] = 0.0
                    inside[-1, (high - 1) % _BLOCKS + 1 :] = 0.0
                self._tiles[slot].extend(tile_sums(inside).tolist())

    def squares(self) -> list[float]:
        """Return the sum of squares of each slot."""
        return [math.fsum(tiles) for tiles in self._tiles]

    def norms(self) -> list[float]:
        """Return the L2 norm of each slot."""
        return [math.sqrt(square) for square in self.squares()]


class ProductSums:
    """Accumulates the inner products of all pairs of some vectors, range by range.

    >>> sums = ProductSums(2)
    >>> sums.add(torch.tensor([[1.0, 2.0], [3.0, 0.5]]).repeat_interleave(2048, 1))
    >>> sums.products()
    [[10240.0, 8192.0], [8192.0, 18944.0]]
    """

    def __init__(self, vectors: int) -> None:
        self._tiles = [[array("d") for _ in range(row + 1)] for row in range(vectors)]

    def add(self, rows: Tensor) -> None:
        """Add a range of whole tiles: float32 [vectors, elements]."""
        wide = rows.to(torch.float64).view(len(rows), -1, TILE)
        for row, own in enumerate(self._tiles):
            for column, tiles in enumerate(own):
                tiles.extend(halved_sum(wide[row] * wide[column]).view(-1).tolist())

    def products(self) -> list[list[float]]:
        """Return the matrix of inner products."""
        lower = [[math.fsum(tiles) for tiles in own] for own in self._tiles]
        count = range(len(lower))
        return [[lower[max(i, j)][min(i, j)] for j in count] for i in count]


def tile_products(a: Tensor, b: Tensor) -> list[float]:
    """Return the inner product of each tile of two float32 vectors: ``math.fsum`` adds them up."""
    found = native.tile_products(a, b)
    if found is None:
        wide = a.to(torch.float64).mul_(b.to(torch.float64))
        found = halved_sum(wide.view(-1, TILE)).view(-1)
    tiles: list[float] = found.tolist()
    return tiles


def tile_sums(blocks: Tensor) -> Tensor:
    """Return the sum of each row, halves added to halves: float64, contiguous [tiles, 64]."""
    found = native.tile_sums(blocks)
    return halved_sum(blocks).view(-1) if found is None else found


def _slots_within(offsets: Sequence[int], start: int, stop: int) -> range:
    """Return the slots that have a part in ``[start, stop)``; empty ones between them too."""
    return range(bisect.bisect_right(offsets, start) - 1, bisect.bisect_left(offsets, stop))


def block_squares(chunk: Tensor) -> Tensor:
    """Return the sum of squares of each block: float64. A float32's square is exact in it.

    Neighbours are added to neighbours: six times, one loop over the whole chunk each.
    """
    compiled = native.block_squares(chunk)
    if compiled is not None:
        return compiled
    wide = chunk.to(torch.float64).view(-1)
    sums = nimble(wide.mul_(wide))
    for _ in range(BLOCK.bit_length() - 1):
        sums = sums[::2] + sums[1::2]
    return torch.as_tensor(sums)
