"""Merging: what each contribution weighs, and how several become one pseudo-gradient.

Every rule here is a linear combination whose coefficients depend only on counters and norms, one
coefficient per contribution and tensor. So a closer streams chunk by chunk, and needs the data
once (mean) or twice (radial-directional mean), never all at once.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Protocol

Norms = Sequence[float | None]
"""L2 norm of each tensor in one contribution; None where the tensor is absent from it."""

Coefficients = list[list[float]]
"""[contribution][tensor]; 0.0 where absent."""

EMBEDDINGS: Final = ("*embed*", "*wte*", "*wpe*")

NEGLIGIBLE: Final = 1e-18
"""A norm up to here counts as zero, so that coefficients with its reciprocal fit in float32."""

_CANCELLED: Final = 1e-6
"""Mean of unit vectors that is only rounding."""


def tokens2_per_step(tokens: int, steps: int) -> float:
    """``tokens^2 / steps`` (Decoupled DiLoCo, arXiv 2604.21428).

    >>> tokens2_per_step(tokens=100, steps=10)
    1000.0
    """
    return tokens * tokens / steps


def by_tokens(tokens: int, steps: int) -> float:  # noqa: ARG001 - the signature all rules share
    """Weigh by tokens."""
    return float(tokens)


def uniform(tokens: int, steps: int) -> float:  # noqa: ARG001 - the signature all rules share
    """Weigh every contribution the same (DiLoCo, arXiv 2311.08105)."""
    return 1.0


WEIGHTS: Final[Mapping[str, Callable[[int, int], float]]] = {
    "tokens2-per-step": tokens2_per_step,
    "tokens": by_tokens,
    "uniform": uniform,
}


class Merge(Protocol):
    """A rule that turns contributions into coefficients."""

    def coefficients(
        self,
        names: Sequence[str],
        weights: Sequence[float],
        norms: Sequence[Norms],
        combined_norms: Callable[[Coefficients], list[float]],
    ) -> Coefficients:
        """Return the coefficients of the merged pseudo-gradient.

        ``combined_norms(c)`` reads the data once and returns the norm of each tensor of the
        combination with coefficients ``c``.
        """
        ...


@dataclass(frozen=True)
class WeightedMean:
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


@dataclass(frozen=True)
class RadialDirectionalMean:
    """``(sum w |v| / sum w) * unit(sum w unit(v) / sum w)`` of each tensor.

    Averages length and direction apart, so that learners which disagree do not shrink the step.
    Embeddings take the plain mean; so does a tensor whose directions cancel.

    Source: Decoupled DiLoCo (arXiv 2604.21428).
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


MERGES: Final[Mapping[str, Merge]] = {
    "weighted-mean": WeightedMean(),
    "radial-directional-mean": RadialDirectionalMean(),
}


def clip_factors(norms: Sequence[float], ratio: float | None) -> list[float]:
    """Return what to scale each contribution by so that none exceeds ``ratio`` times the median.

    Below three contributions there is no majority to call a norm exceptional: nothing is clipped.

    >>> clip_factors([1.0, 2.0, 40.0], ratio=10.0)
    [1.0, 1.0, 0.5]
    """
    if ratio is None or len(norms) < 3:
        return [1.0] * len(norms)
    limit = ratio * statistics.median(norms)
    return [limit / norm if norm > limit > 0.0 else 1.0 for norm in norms]


def reciprocal(norm: float | None) -> float:
    """Return ``1 / norm``, which makes a unit vector; 0.0 where it is negligible or absent."""
    return 1.0 / norm if norm is not None and norm > NEGLIGIBLE else 0.0


def _weights_of(weights: Sequence[float], norms: Sequence[Norms], slot: int) -> list[float]:
    """Return the weights of the contributions that hold a tensor."""
    return [w for w, own in zip(weights, norms, strict=True) if own[slot] is not None]
