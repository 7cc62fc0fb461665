"""One round's arithmetic, chunk by chunk over anything that can be read and written by range."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from torch import Tensor

from gradientmail.algorithms.aggregator import (
    Aggregator,
    Counters,
    Outcome,
    Readable,
    Sink,
    State,
)
from gradientmail.algorithms.combining import Combination, Combine, Decoded, Range, Whole
from gradientmail.algorithms.guards import Ruling
from gradientmail.algorithms.merge import (
    Coefficients,
    Norms,
    RangeMerge,
    WeightedMean,
    clip_factors,
    reciprocal,
)
from gradientmail.algorithms.outer import Turn
from gradientmail.algorithms.reduce import SquareSums, root_of_squares
from gradientmail.algorithms.sights import Glance, Sight, glance, looked_at, sights
from gradientmail.algorithms.stepping import Stepping, published
from gradientmail.codecs.layout import CHUNK, TILE, FragmentLayout, chunks
from gradientmail.errors import TooFewError

_RANGE = CHUNK // 2
"""Elements merged and stepped at once: some ten vectors of them fit into a thread's cache."""

_WHOLE = 4 * CHUNK
"""Elements of all contributions together that a rule sees at once."""

T = TypeVar("T")


class Each(Protocol):
    """Calls a function with each of several ranges, in any order or side by side: as ``map``."""

    def __call__(self, function: Callable[[Range], T], ranges: Iterable[Range], /) -> Iterable[T]:
        """Return what it returns, in the order of ``ranges``."""
        ...


@dataclass
class Aggregation:
    """One round's arithmetic. Memory: a few chunks, however large the fragment and the round.

    Args:
        combine: How to sum linearly; by default the sources are read one after another.
        each: How to go through the ranges. The bits do not depend on it.
    """

    aggregator: Aggregator
    layout: FragmentLayout
    counters: Sequence[Counters]
    sources: Sequence[Readable]
    combine: Combine | None = None
    each: Each = map
    _clips: list[float] = field(init=False)

    def run(self, state: State, sink: Sink) -> Outcome:
        """Write the next version, reading the state once, contributions once to four times.

        Raises:
            TooFewError: the rule needs more contributions than there are, or the guard leaves.
        """
        rule, parameters = self.aggregator, slice(self.layout.parameter_slots)
        if shortfall := rule.shortfall(len(self.counters)):
            raise TooFewError(shortfall)
        norms = [root_of_squares(own.norms[parameters]) for own in self.counters]
        weights = [rule.weights.weigh(own.work) for own in self.counters]
        self._clips = clip_factors(norms, rule.clip_ratio)
        units = [[reciprocal(n)] * len(self.layout.slots) for n in norms]
        merge = self._merger(weights, units)
        ruling = self._ruling(state, merge)
        left_out = sum(ruling.suppressed)
        if shortfall := rule.shortfall(len(self.counters) - left_out):
            raise TooFewError(f"{shortfall}: the guard left out {left_out}")
        counted = [0.0 if out else w for out, w in zip(ruling.suppressed, weights, strict=True)]
        if counted != weights:
            merge = self._merger(counted, units)
        scale = ruling.scale * rule.schedule.factor(state.version + 1)
        step = self._stepping(merge, counted, Turn(state.outer_steps, scale))
        merged, seen = self._close(state, sink, merge, step)
        moved = sum(reciprocal(norm) > 0.0 for norm in norms)
        return Outcome(
            weights=tuple(weights),
            norms=tuple(norms),
            clips=tuple(self._clips),
            cosine=_cosine(merged[1], moved),
            norm=math.sqrt(merged[0]),
            sights=seen,
            suppressed=ruling.suppressed,
            scale=scale,
        )

    def _close(
        self, state: State, sink: Sink, merge: Callable[[Range], Combination], step: Stepping
    ) -> tuple[tuple[float, float], tuple[Sight, ...]]:
        """Merge and step range by range; return squares of merged and of unit sums, and sights."""
        ranges = self._ranges()

        def close(bounds: Range) -> tuple[Combination, list[Glance]]:
            merged = merge(bounds)
            old, new = step.take(state, sink, bounds[0], merged.total)
            return merged, self._glances(bounds, merged.total, old, new)

        totals, units, glances = SquareSums(self.layout), SquareSums(self.layout), []
        for (start, _), (merged, seen) in zip(ranges, self.each(close, ranges), strict=True):
            totals.add_blocks(start, merged.squares)
            units.add_blocks(start, merged.unit_squares)
            glances += seen
        parameters = slice(self.layout.parameter_slots)
        squares = (math.fsum(sums.squares()[parameters]) for sums in (totals, units))
        return (next(squares), next(squares)), sights(glances)

    def _ranges(self) -> list[Range]:
        """Cut the parameters, then the buffers: no range holds both."""
        end, length = self.layout.parameters_end, _RANGE
        if isinstance(self.aggregator.merge, RangeMerge):
            length = min(_RANGE, max(TILE, _WHOLE // max(1, len(self.sources)) // TILE * TILE))
        return [*chunks(0, end, length), *chunks(end, self.layout.numel, length)]

    # -- merging -------------------------------------------------------------------------------

    def _merger(
        self, weights: Sequence[float], units: Coefficients
    ) -> Callable[[Range], Combination]:
        """Return what merges a range."""
        rule, names = self.aggregator.merge, [slot.name for slot in self.layout.slots]
        combine = self.combine or Decoded(self.layout, self.sources)
        end, buffers = self.layout.parameters_end, self.layout.parameter_slots
        clipped: list[Norms] = [
            [None if norm is None else norm * clip for norm in own.norms]
            for own, clip in zip(self.counters, self._clips, strict=True)
        ]
        # Statistics replace each other: what is late against older ones cannot be added to these.
        timely = [0.0 if c.staleness else w for c, w in zip(self.counters, weights, strict=True)]
        mean = WeightedMean().coefficients(names, timely, clipped, self._norms_of)
        if isinstance(rule, RangeMerge):
            whole = Whole(self.layout, self.sources, clipped, self._clips)
            parameters = [bounds for bounds in self._ranges() if bounds[0] < end]
            merger = rule.merger(weights, clipped, lambda: whole.products(parameters))
            scaled = _scaled(mean, self._clips)
            return lambda bounds: (
                whole.merge(merger, *bounds, units)
                if bounds[0] < end
                else combine(*bounds, scaled, units)
            )
        rest = [0.0] * (len(names) - buffers)
        rows = rule.coefficients(
            names[:buffers],
            weights,
            [own[:buffers] for own in clipped],
            lambda some: self._norms_of([[*row, *rest] for row in some])[:buffers],
        )
        rows = [row + own[buffers:] for row, own in zip(rows, mean, strict=True)]
        linear = _scaled(rows, self._clips)
        return lambda bounds: combine(*bounds, linear, units)

    def _norms_of(self, coefficients: Coefficients) -> list[float]:
        """Return the norm of each tensor of a combination of the clipped contributions.

        The rule sees clipped contributions; the data is scaled as it is read.
        """
        combine = self.combine or Decoded(self.layout, self.sources)
        scaled = _scaled(coefficients, self._clips)
        return self._sums(lambda bounds: combine(*bounds, scaled, None)).norms()

    def _sums(self, merge: Callable[[Range], Combination]) -> SquareSums:
        """Return the squares of what ``merge`` makes of each tensor."""
        sums, ranges = SquareSums(self.layout), self._ranges()
        for (start, _), merged in zip(ranges, self.each(merge, ranges), strict=True):
            sums.add_blocks(start, merged.squares)
        return sums

    # -- looking and stepping --------------------------------------------------------------------

    def _glances(self, bounds: Range, merged: Tensor, old: Tensor, new: Tensor) -> list[Glance]:
        """Hold learners against the round in those places of a range that are looked at."""
        found, end = [], self.layout.parameters_end
        for low, high in looked_at(*bounds, end):
            deltas = (source.read(low, high) for source in self.sources)
            part = slice(low - bounds[0], high - bounds[0])
            found.append(glance(deltas, merged[part], old[part], new[part]))
        return found

    def _ruling(self, state: State, merge: Callable[[Range], Combination]) -> Ruling:
        """Return what the guard decides of the round as it would be with everyone in it."""
        guard = self.aggregator.guard
        if not guard.looks:
            return Ruling((False,) * len(self.counters))

        def look(bounds: Range) -> list[Glance]:
            old, merged = published(state, *bounds), merge(bounds).total
            return self._glances(bounds, merged, old, old - merged)

        end = self.layout.parameters_end
        places = [place for bounds in self._ranges() for place in looked_at(*bounds, end)]
        seen = [one for found in self.each(look, places) for one in found]
        return guard.judge(sights(seen))

    def _stepping(
        self, merge: Callable[[Range], Combination], counted: Sequence[float], turn: Turn
    ) -> Stepping:
        rule = self.aggregator
        norms = [own.norms for own, w in zip(self.counters, counted, strict=True) if w > 0.0]
        present = [
            any(own[slot] is not None for own in norms) for slot in range(len(self.layout.slots))
        ]
        clip = 1.0
        if rule.outer_clip_norm is not None:
            norm = root_of_squares(self._sums(merge).norms()[: self.layout.parameter_slots])
            clip = min(1.0, rule.outer_clip_norm * reciprocal(norm)) if norm else 1.0
        return Stepping(rule.outer, self.layout, present, turn, clip)


def _scaled(coefficients: Coefficients, factors: Sequence[float]) -> Coefficients:
    pairs = zip(coefficients, factors, strict=True)
    return [[value * factor for value in row] for row, factor in pairs]


def _cosine(square_of_sum: float, count: int) -> float | None:
    """``(|sum u|^2 - N) / (N (N - 1))`` of N unit vectors u: the mean over pairs in one pass."""
    return None if count < 2 else (square_of_sum - count) / (count * (count - 1))
