"""Merging: how several pseudo-gradients become one.

Every rule in this module is a linear combination whose coefficients depend only on weights and
norms, one coefficient per contribution and tensor. So a closer streams chunk by chunk, and needs
the data once (mean) or twice (radial-directional mean), never all at once. Rules that are not
linear are in ``robust``; ``rules`` has all by name.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Final, Protocol, runtime_checkable

import msgspec
from torch import Tensor

from gradientmail.algorithms.reduce import root_of_squares
from gradientmail.choices import Choice

Norms = Sequence[float | None]
"""L2 norm of each tensor in one contribution; None where the tensor is absent from it."""

Coefficients = list[list[float]]
"""[contribution][tensor]; 0.0 where absent."""

EMBEDDINGS: Final = ("*embed*", "*wte*", "*wpe*")

NEGLIGIBLE: Final = 1e-18
"""A norm up to here counts as zero, so that coefficients with its reciprocal fit in float32."""

_CANCELLED: Final = 1e-6
"""Mean of unit vectors that is only rounding."""


@runtime_checkable
class Merge(Protocol):
    """A linear rule: it turns contributions into coefficients."""

    @property
    def least(self) -> int:
        """Contributions below which it promises nothing."""
        ...

    def coefficients(
        self,
        names: Sequence[str],
        weights: Sequence[float],
        norms: Sequence[Norms],
        combined_norms: Callable[[Coefficients], list[float]],
    ) -> Coefficients:
        """Return the coefficients of the merged pseudo-gradient; tensors are parameters only.

        ``combined_norms(c)`` reads the data once and returns the norm of each tensor of the
        combination with coefficients ``c``.
        """
        ...


Merger = Callable[[Tensor, Sequence[int]], Tensor]
"""(float32 [k, elements] of the contributions that hold these tensors, clipped; which they are)
-> float32 [elements]. Called range by range; elementwise IEEE operations only, see ``reduce``."""

Products = Callable[[], list[list[float]]]
"""Reads the data once: inner products of all contributions, clipped, over all parameters."""


@runtime_checkable
class RangeMerge(Protocol):
    """A rule that is not linear in what it merges: a median, a trimmed mean."""

    @property
    def least(self) -> int:
        """Contributions below which it promises nothing."""
        ...

    def merger(
        self, weights: Sequence[float], norms: Sequence[Norms], products: Products
    ) -> Merger:
        """Return what merges the ranges of one round; ``norms`` are those after clipping."""
        ...


class _Linear(Choice, frozen=True):
    @property
    def least(self) -> int:
        """See ``Merge.least``."""
        return 1


class WeightedMean(_Linear, frozen=True):
    """``sum w v / sum w``, over the contributions that hold the tensor."""

    def coefficients(
        self,
        names: Sequence[str],
        weights: Sequence[float],
        norms: Sequence[Norms],
        combined_norms: Callable[[Coefficients], list[float]],  # noqa: ARG002 - see Merge
    ) -> Coefficients:
        """See ``Merge.coefficients``."""
        totals = [math.fsum(_weights_of(weights, norms, slot)) for slot in range(len(names))]
        return [
            [
                weight / total if norm is not None and total > 0.0 else 0.0
                for norm, total in zip(own, totals, strict=True)
            ]
            for weight, own in zip(weights, norms, strict=True)
        ]


class RadialDirectionalMean(_Linear, frozen=True):
    """``(sum w |v| / sum w) * unit(sum w unit(v) / sum w)`` of each tensor.

    Averages length and direction apart, so that learners which disagree do not shrink the step.
    Embeddings take the plain mean; so does a tensor whose directions cancel.

    Source: Decoupled DiLoCo (arXiv 2604.21428).

    Attributes:
        plain: Patterns of the names of tensors that take the plain mean.
    """

    plain: tuple[str, ...] = EMBEDDINGS

    def coefficients(
        self,
        names: Sequence[str],
        weights: Sequence[float],
        norms: Sequence[Norms],
        combined_norms: Callable[[Coefficients], list[float]],
    ) -> Coefficients:
        """See ``Merge.coefficients``."""
        mean = WeightedMean().coefficients(names, weights, norms, combined_norms)
        radial = [
            slot
            for slot, name in enumerate(names)
            if self._is_radial(name, _weights_of(weights, norms, slot))
        ]
        if not radial:
            return mean
        units = [
            [share * reciprocal(norm) for share, norm in zip(row, own, strict=True)]
            for row, own in zip(mean, norms, strict=True)
        ]
        directions = combined_norms(units)
        for slot in radial:
            rows = list(zip(mean, norms, units, strict=True))
            length = math.fsum(row[slot] * (own[slot] or 0.0) for row, own, _ in rows)
            if directions[slot] > _CANCELLED:
                for row, _, unit in rows:
                    row[slot] = unit[slot] * (length / directions[slot])
        return mean

    def _is_radial(self, name: str, weights: Sequence[float]) -> bool:
        """One contribution is its own mean, exactly, and needs no second look at the data."""
        several = sum(weight > 0.0 for weight in weights) > 1
        return several and not any(fnmatchcase(name, pattern) for pattern in self.plain)


class NormClippedMean(_Linear, frozen=True):
    """The weighted mean of contributions of which none is longer than ``ratio`` medians.

    Source: Sun et al. (arXiv 1911.07963), with the median for a bound.

    Attributes:
        ratio: Length, in medians of the round's norms, to which a longer contribution is cut.
        most: Length above which every contribution is cut besides; none knows no such bound.
    """

    ratio: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] = 1.0
    most: Annotated[float, msgspec.Meta(gt=0.0, le=1e12)] | None = None

    def coefficients(
        self,
        names: Sequence[str],
        weights: Sequence[float],
        norms: Sequence[Norms],
        combined_norms: Callable[[Coefficients], list[float]],
    ) -> Coefficients:
        """See ``Merge.coefficients``."""
        mean = WeightedMean().coefficients(names, weights, norms, combined_norms)
        lengths = [root_of_squares(own) for own in norms]
        counted = [length for length, weight in zip(lengths, weights, strict=True) if weight > 0.0]
        bound = self.ratio * statistics.median(counted) if counted else 0.0
        bound = bound if self.most is None else min(bound, self.most)
        cuts = [bound / length if length > bound > 0.0 else 1.0 for length in lengths]
        return [[share * cut for share in row] for row, cut in zip(mean, cuts, strict=True)]


def clip_factors(norms: Sequence[float], ratio: float | None) -> list[float]:
    """Return what to scale each contribution by so that none exceeds ``ratio`` times the median.

    Below three contributions there is no majority to call a norm exceptional: nothing is clipped.

    >>> clip_factors([1.0, 2.0, 40.0], ratio=10.0)
    [1.0, 1.0, 0.5]
    """
    if ratio is None or len(norms) < 3:
        return [1.0] * len(norms)
    limit = ratio * statistics.median(norms)
    return [limit / norm if norm > limit > NEGLIGIBLE else 1.0 for norm in norms]


def reciprocal(norm: float | None) -> float:
    """Return ``1 / norm``, which makes a unit vector; 0.0 where it is negligible or absent."""
    return 1.0 / norm if norm is not None and norm > NEGLIGIBLE else 0.0


def _weights_of(weights: Sequence[float], norms: Sequence[Norms], slot: int) -> list[float]:
    """Return the weights of the contributions that hold a tensor."""
    return [w for w, own in zip(weights, norms, strict=True) if own[slot] is not None]
