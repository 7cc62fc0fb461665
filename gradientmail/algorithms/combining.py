"""How the contributions of one range become one: linearly, or by a rule that sees them all.

A linear rule (``merge.Merge``) says what to multiply each contribution's tensors by, and
``Combine`` sums them: fused with reading and decoding where the closer has a way. Any other
(``merge.RangeMerge``) sees all contributions' numbers of a range at once, decoded, and so gets
shorter ranges the more contributions there are.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import Readable
from gradientmail.algorithms.merge import Coefficients, Merger, Norms
from gradientmail.algorithms.reduce import BLOCK, ProductSums, block_squares, per_block
from gradientmail.codecs.layout import FragmentLayout

Range = tuple[int, int]


@dataclass(frozen=True)
class Combination:
    """A combination of one range.

    Attributes:
        total: float32 [elements].
        squares: float64 [blocks]: of ``total``, as ``reduce.block_squares`` gives them.
        unit_squares: The same of the sum of unit vectors, where that was asked for.
    """

    total: Tensor
    squares: Tensor
    unit_squares: Tensor


class Combine(Protocol):
    """Sums contributions, each tensor of each times its coefficient, in the order given."""

    def __call__(
        self, start: int, stop: int, coefficients: Coefficients, units: Coefficients | None
    ) -> Combination:
        """Return the sum over ``[start, stop)``, which holds no parameters beside buffers.

        ``units`` makes the second sum, of which only the squares are wanted.
        """
        ...


@dataclass(frozen=True)
class Decoded:
    """``Combine`` over sources that are read one by one: what every other way must equal."""

    layout: FragmentLayout
    sources: Sequence[Readable]

    def __call__(
        self, start: int, stop: int, coefficients: Coefficients, units: Coefficients | None
    ) -> Combination:
        """See ``Combine``."""
        total, unit = torch.zeros(stop - start), torch.zeros(stop - start)
        for index, source in enumerate(self.sources):
            chunk = source.read(start, stop).view(-1, BLOCK)
            if units is not None:
                own = per_block(self.layout, units[index], start, stop)
                unit += (chunk * own).view(-1)
            total += chunk.mul_(per_block(self.layout, coefficients[index], start, stop)).view(-1)
        return Combination(total, block_squares(total), block_squares(unit))


@dataclass(frozen=True)
class Whole:
    """All contributions of a range at once, clipped, as the rows of one tensor."""

    layout: FragmentLayout
    sources: Sequence[Readable]
    norms: Sequence[Norms]
    clips: Sequence[float]

    def merge(self, merger: Merger, start: int, stop: int, units: Coefficients) -> Combination:
        """Merge a range of parameters; what no contribution holds stays zero."""
        rows, unit, total = self._rows(start, stop), *torch.zeros(2, stop - start)
        for row, own, clip in zip(rows, units, self.clips, strict=True):
            unit += (row.view(-1, BLOCK) * per_block(self.layout, own, start, stop)).view(-1)
            row.mul_(clip)
        for low, high, holders in self._runs(start, stop):
            if holders:
                total[low:high] = merger(rows[list(holders), low:high], holders)
        return Combination(total, block_squares(total), block_squares(unit))

    def products(self, ranges: Iterable[Range]) -> list[list[float]]:
        """Return the inner products of all pairs over ``ranges``."""
        sums = ProductSums(len(self.sources))
        for start, stop in ranges:
            rows = self._rows(start, stop)
            for row, clip in zip(rows, self.clips, strict=True):
                row.mul_(clip)
            sums.add(rows)
        return sums.products()

    def _rows(self, start: int, stop: int) -> Tensor:
        rows = torch.empty(len(self.sources), stop - start)
        for row, source in zip(rows, self.sources, strict=True):
            row.copy_(source.read(start, stop))
        return rows

    def _runs(self, start: int, stop: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Cut ``[start, stop)`` where the holders change: from, to (both from start), holders."""
        slots = range(len(self.layout.slots))
        blocks = per_block(self.layout, list(slots), start, stop).flatten().tolist()
        low = 0
        for holders, run in groupby(blocks, lambda slot: self._holders(int(slot))):
            high = low + BLOCK * sum(1 for _ in run)
            yield low, high, holders
            low = high

    def _holders(self, slot: int) -> tuple[int, ...]:
        return tuple(index for index, own in enumerate(self.norms) if own[slot] is not None)
