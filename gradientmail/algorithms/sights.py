"""How far each learner went from what the round made of all: measured by the closer, on the way.

Of learner m with pseudo-gradient ``d_m``, the merged one ``d``, and the version before and after,
``Theta_old`` and ``Theta_new``: divergence is ``|theta_m - Theta_new| / |Theta_new|`` with
``theta_m = Theta_old - d_m`` (for a late contribution as if it had been made against that
version), and the cosine is that of ``d_m`` and ``d``. Beyond ``MEASURED`` elements they are
measured on places spread evenly over the fragment, so that they cost a closer little.

Source of the measure: flodl's convergence guard (weight-space divergence at a sync).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from torch import Tensor

from gradientmail.algorithms.merge import NEGLIGIBLE
from gradientmail.algorithms.reduce import tile_products
from gradientmail.codecs.layout import TILE

MEASURED: Final = 1 << 18
"""Elements of a fragment that are looked at, at most."""

PLACES: Final = 4
"""In how many places."""

Range = tuple[int, int]
Tiles = list[float]


@dataclass(frozen=True, slots=True)
class Sight:
    """One learner, seen from the round.

    Attributes:
        divergence: Distance of its parameters from the new version, over the length of that.
        cosine: Of its pseudo-gradient and the merged one; None where either is zero.
    """

    divergence: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Glance:
    """Sums over the tiles of one range.

    Attributes:
        own: Of each contribution those of ``d^2``, ``d merged`` and ``(theta_m - new)^2``.
        merged: Those of ``merged^2``.
        new: Those of ``new^2``.
    """

    own: tuple[tuple[Tiles, Tiles, Tiles], ...]
    merged: Tiles
    new: Tiles


def looked_at(start: int, stop: int, numel: int) -> Iterator[Range]:
    """Yield the parts of a range that are looked at, of ``numel`` parameters in all.

    They are the same places however the parameters are cut.

    >>> list(looked_at(0, 1 << 19, 1 << 20))
    [(0, 65536), (262144, 327680)]
    """
    each = MEASURED // PLACES if numel > MEASURED else -(-numel // PLACES)
    for place in range(PLACES):
        first = place * numel // PLACES // TILE * TILE
        last = (place + 1) * numel // PLACES // TILE * TILE
        low, high = max(start, first), min(stop, last, first + -(-each // TILE) * TILE)
        if low < high:
            yield low, high


def glance(deltas: Iterable[Tensor], merged: Tensor, old: Tensor, new: Tensor) -> Glance:
    """Look at one range of every contribution; all float32, of whole tiles."""
    step = old - new
    own = []
    for delta in deltas:
        apart = delta - step
        own.append(
            (
                tile_products(delta, delta),
                tile_products(delta, merged),
                tile_products(apart, apart),
            )
        )
    return Glance(tuple(own), tile_products(merged, merged), tile_products(new, new))


def sights(glances: Sequence[Glance]) -> tuple[Sight, ...]:
    """Return what all ranges together say of each contribution."""
    merged = math.sqrt(_sum(one.merged for one in glances))
    new = math.sqrt(_sum(one.new for one in glances))
    found = []
    for sums in zip(*(one.own for one in glances), strict=True):
        squares, products, apart = (_sum(each) for each in zip(*sums, strict=True))
        lengths = math.sqrt(squares) * merged
        cosine = max(-1.0, min(1.0, products / lengths)) if lengths > NEGLIGIBLE else None
        divergence = math.sqrt(apart) / new if new > NEGLIGIBLE else 0.0
        found.append(Sight(divergence=min(divergence, 1e30), cosine=cosine))
    return tuple(found)


def _sum(parts: Iterable[Tiles]) -> float:
    return math.fsum(chain.from_iterable(parts))
