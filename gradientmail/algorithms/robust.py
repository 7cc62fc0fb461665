"""Merging rules that some learners may lie to: medians, trimmed means, and the choice of a few.

Learners' weights do not count here, or a lie about tokens would be as good as one about data; a
weight of 0 still leaves a contribution out. Each needs a number of contributions, ``least``, below
which it promises nothing, and a version is not made from fewer.

They see one range of all contributions at once, and are not linear in them. Equal numbers and
signs of zero leave no trace of the order of contributions; of equally good contributions the first
is taken, and a round has them in the order of names.
"""

import math
from collections.abc import Collection, Sequence
from typing import Annotated

import msgspec
import torch
from torch import Tensor

from gradientmail.algorithms.merge import Merger, Norms, Products
from gradientmail.choices import Choice

Liars = Annotated[int, msgspec.Meta(ge=0, le=1000)]


class CoordinateMedian(Choice, frozen=True):
    """The median of each number; of an even count the mean of the middle two.

    Source: Yin et al. (arXiv 1803.01498).
    """

    @property
    def least(self) -> int:
        """See ``RangeMerge.least``."""
        return 3

    def merger(
        self,
        weights: Sequence[float],
        norms: Sequence[Norms],  # noqa: ARG002 - see RangeMerge
        products: Products,  # noqa: ARG002
    ) -> Merger:
        """See ``RangeMerge.merger``."""
        counted = _counted(weights)
        return lambda rows, holders: _median(_of(rows, holders, counted))


class TrimmedMean(Choice, frozen=True):
    """The mean of each number without the ``trim`` largest and the ``trim`` smallest.

    Source: Yin et al. (arXiv 1803.01498).

    Attributes:
        trim: How many are left out at either end: as many learners may lie.
    """

    trim: Liars = 1

    @property
    def least(self) -> int:
        """See ``RangeMerge.least``."""
        return 2 * self.trim + 1

    def merger(
        self,
        weights: Sequence[float],
        norms: Sequence[Norms],  # noqa: ARG002 - see RangeMerge
        products: Products,  # noqa: ARG002
    ) -> Merger:
        """See ``RangeMerge.merger``."""
        counted = _counted(weights)

        def merge(rows: Tensor, holders: Sequence[int]) -> Tensor:
            ordered = _ordered(_of(rows, holders, counted))
            trim = min(self.trim, (len(ordered) - 1) // 2)
            return _mean(ordered[trim : len(ordered) - trim])

        return merge


class Krum(Choice, frozen=True):
    """The one contribution that has the nearest neighbours.

    Of n contributions each is scored by the squared distances to its ``n - byzantine - 2``
    nearest; the one of the least score is the round.

    Source: Blanchard et al. (arXiv 1703.02757).

    Attributes:
        byzantine: How many learners may lie.
    """

    byzantine: Liars = 1

    @property
    def least(self) -> int:
        """See ``RangeMerge.least``."""
        return 2 * self.byzantine + 3

    def merger(
        self,
        weights: Sequence[float],
        norms: Sequence[Norms],  # noqa: ARG002 - see RangeMerge
        products: Products,
    ) -> Merger:
        """See ``RangeMerge.merger``."""
        counted = _counted(weights)
        neighbours = max(1, len(counted) - self.byzantine - 2)
        scores = _scores(_distances(products()), counted, neighbours)
        best = sorted(counted, key=lambda index: (scores[index], index))
        kept = set(best[: self._kept(neighbours)])

        def merge(rows: Tensor, holders: Sequence[int]) -> Tensor:
            if kept.isdisjoint(holders):
                return _median(_of(rows, holders, counted))
            return _mean(_ordered(_of(rows, holders, kept)))

        return merge

    def _kept(self, most: int) -> int:  # noqa: ARG002 - several may be kept elsewhere
        return 1


class MultiKrum(Krum, frozen=True):
    """The plain mean of the ``keep`` contributions of the least score, which is Krum's.

    Source: Blanchard et al. (arXiv 1703.02757).

    Attributes:
        byzantine: How many learners may lie.
        keep: How many are averaged; none: ``n - byzantine - 2``, which is also the most.
    """

    keep: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None

    def _kept(self, most: int) -> int:
        return most if self.keep is None else min(self.keep, most)


class Bulyan(Choice, frozen=True):
    """Krum chooses ``n - 2 byzantine``; of those, the mean of each number's values at the median.

    Chosen one after another by Krum among those left. Of the chosen, each number becomes the mean
    of the ``n - 4 byzantine`` values nearest to its median.

    Source: El Mhamdi et al. (arXiv 1802.07927).

    Attributes:
        byzantine: How many learners may lie.
    """

    byzantine: Liars = 1

    @property
    def least(self) -> int:
        """See ``RangeMerge.least``."""
        return 4 * self.byzantine + 3

    def merger(
        self,
        weights: Sequence[float],
        norms: Sequence[Norms],  # noqa: ARG002 - see RangeMerge
        products: Products,
    ) -> Merger:
        """See ``RangeMerge.merger``."""
        counted = _counted(weights)
        chosen = self._chosen(_distances(products()), counted)

        def merge(rows: Tensor, holders: Sequence[int]) -> Tensor:
            held = counted if chosen.isdisjoint(holders) else chosen
            ordered = _ordered(_of(rows, holders, held))
            middle = _middle(ordered)
            near = torch.sort((ordered - middle).abs(), dim=0, stable=True).indices
            keep = max(1, len(ordered) - 2 * self.byzantine)
            return _mean(ordered.gather(0, near[:keep]))

        return merge

    def _chosen(self, distances: list[list[float]], counted: Sequence[int]) -> set[int]:
        left = list(counted)
        for _ in range(max(1, len(counted) - 2 * self.byzantine)):
            scores = _scores(distances, left, max(1, len(left) - self.byzantine - 2))
            left.remove(min(left, key=lambda index: (scores[index], index)))
        return set(counted) - set(left)


# -- contributions ------------------------------------------------------------------------------


def _counted(weights: Sequence[float]) -> list[int]:
    return [index for index, weight in enumerate(weights) if weight > 0.0]


def _distances(products: list[list[float]]) -> list[list[float]]:
    """Return ``|a - b|^2`` of every pair."""
    count = range(len(products))
    return [
        [max(0.0, products[a][a] + products[b][b] - 2.0 * products[a][b]) for b in count]
        for a in count
    ]


def _scores(
    distances: list[list[float]], among: Sequence[int], neighbours: int
) -> dict[int, float]:
    """Return of each contribution the sum of squared distances to its nearest neighbours."""
    return {
        one: math.fsum(
            sorted(distances[one][other] for other in among if other != one)[:neighbours]
        )
        for one in among
    }


# -- rows ---------------------------------------------------------------------------------------


def _of(rows: Tensor, holders: Sequence[int], counted: Collection[int]) -> Tensor:
    """Return the rows of those that count; one of zeros where none does."""
    chosen = [row for row, index in enumerate(holders) if index in counted]
    if not chosen:
        return torch.zeros(1, rows.shape[1])
    return rows if len(chosen) == len(rows) else rows[chosen]


def _ordered(rows: Tensor) -> Tensor:
    """Sort each column; a zero has no sign, or the order of equals would show."""
    return torch.sort(rows + 0.0, dim=0).values


def _mean(rows: Tensor) -> Tensor:
    total = rows[0].clone()
    for row in rows[1:]:
        total += row
    return total / len(rows)


def _middle(ordered: Tensor) -> Tensor:
    high = len(ordered) // 2
    return ordered[high] if len(ordered) % 2 else (ordered[high - 1] + ordered[high]) * 0.5


def _median(rows: Tensor) -> Tensor:
    return _middle(_ordered(rows))
