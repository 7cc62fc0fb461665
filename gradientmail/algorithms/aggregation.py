"""One round's arithmetic, chunk by chunk over anything that can be read and written by range."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import (
    MASTER,
    PARAMS,
    UPDATE,
    Aggregator,
    Counters,
    Outcome,
    Readable,
    Sink,
    State,
)
from gradientmail.algorithms.combining import (
    Combination,
    Combine,
    Decoded,
    Range,
    RangeMerge,
    Whole,
)
from gradientmail.algorithms.merge import (
    WEIGHTS,
    Coefficients,
    Norms,
    WeightedMean,
    clip_factors,
    reciprocal,
)
from gradientmail.algorithms.reduce import BLOCK, SquareSums, per_block, root_of_squares
from gradientmail.codecs.layout import CHUNK, TILE, FragmentLayout, chunks

_WHOLE = 4 * CHUNK
"""Elements of all contributions together that a rule sees at once."""


class Each(Protocol):
    """Calls a function with each of several ranges, in any order or side by side: as ``map``."""

    def __call__(
        self, function: Callable[[Range], Combination], ranges: Iterable[Range], /
    ) -> Iterable[Combination]:
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
    _present: list[bool] = field(init=False)

    def run(self, state: State, sink: Sink) -> Outcome:
        """Write the next version, reading the state once, contributions once or twice."""
        rule, parameters = self.aggregator, slice(self.layout.parameter_slots)
        norms = [root_of_squares(own.norms[parameters]) for own in self.counters]
        weights = [WEIGHTS[rule.weights](own.tokens, own.steps) for own in self.counters]
        self._clips = clip_factors(norms, rule.clip_ratio)
        self._present = [
            any(own.norms[slot] is not None for own in self.counters)
            for slot in range(len(self.layout.slots))
        ]
        merge = self._merger(weights, [[reciprocal(n)] * len(self.layout.slots) for n in norms])
        ranges = self._ranges()

        def close(bounds: Range) -> Combination:
            merged = merge(bounds)
            self._step(state, sink, bounds[0], merged.total)
            return merged

        totals, units = SquareSums(self.layout), SquareSums(self.layout)
        for (start, _), merged in zip(ranges, self.each(close, ranges), strict=True):
            totals.add_blocks(start, merged.squares)
            units.add_blocks(start, merged.unit_squares)
        moved = sum(reciprocal(norm) > 0.0 for norm in norms)
        return Outcome(
            weights=tuple(weights),
            norms=tuple(norms),
            clips=tuple(self._clips),
            cosine=_cosine(math.fsum(units.squares()[parameters]), moved),
            norm=math.sqrt(math.fsum(totals.squares()[parameters])),
        )

    def _ranges(self) -> list[Range]:
        """Cut the parameters, then the buffers: no range holds both."""
        end, length = self.layout.parameters_end, CHUNK
        if isinstance(self.aggregator.merge, RangeMerge):
            length = min(CHUNK, max(TILE, _WHOLE // max(1, len(self.sources)) // TILE * TILE))
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
        mean = WeightedMean().coefficients(names, weights, clipped, self._norms_of)
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
        rows = rule.coefficients(names, weights, clipped, self._norms_of)
        rows = [row[:buffers] + own[buffers:] for row, own in zip(rows, mean, strict=True)]
        linear = _scaled(rows, self._clips)
        return lambda bounds: combine(*bounds, linear, units)

    def _norms_of(self, coefficients: Coefficients) -> list[float]:
        """Return the norm of each tensor of a combination of the clipped contributions.

        The rule sees clipped contributions; the data is scaled as it is read.
        """
        combine = self.combine or Decoded(self.layout, self.sources)
        scaled, sums = _scaled(coefficients, self._clips), SquareSums(self.layout)
        ranges = self._ranges()
        found = self.each(lambda bounds: combine(*bounds, scaled, None), ranges)
        for (start, _), combination in zip(ranges, found, strict=True):
            sums.add_blocks(start, combination.squares)
        return sums.norms()

    # -- stepping ------------------------------------------------------------------------------

    def _step(self, state: State, sink: Sink, start: int, merged: Tensor) -> None:
        """Take the outer step on one chunk and write what the sink takes."""
        stop = start + merged.numel()
        published = _need(state.read(PARAMS, start, stop))
        kept = state.read(MASTER, start, stop)
        master = published if kept is None else kept
        outer = self.aggregator.outer
        old = {name: _or_zero(state.read(name, start, stop), merged) for name in outer.sections}
        if start < self.layout.parameters_end:
            following, new = outer.update(master, merged, old)
        else:
            following, new = master - merged, old
        if not all(self._present):
            mask = per_block(self.layout, self._present, start, stop).expand(-1, BLOCK)
            mask = mask.reshape(-1) > 0.0
            following = torch.where(mask, following, master)
            new = {name: torch.where(mask, vector, old[name]) for name, vector in new.items()}
        for name, vector in new.items():
            sink.write(name, start, vector)
        self._publish(sink, start, published, following)

    def _publish(self, sink: Sink, start: int, published: Tensor, master: Tensor) -> None:
        """Write what learners receive: exactly old + update. The master keeps the rounding."""
        if UPDATE in sink.sections:
            update = sink.write(UPDATE, start, master - published)
            sink.write(PARAMS, start, published + update)
        else:
            sink.write(PARAMS, start, master)
        if MASTER in sink.sections:
            sink.write(MASTER, start, master)


def _scaled(coefficients: Coefficients, factors: Sequence[float]) -> Coefficients:
    pairs = zip(coefficients, factors, strict=True)
    return [[value * factor for value in row] for row, factor in pairs]


def _cosine(square_of_sum: float, count: int) -> float | None:
    """``(|sum u|^2 - N) / (N (N - 1))`` of N unit vectors u: the mean over pairs in one pass."""
    return None if count < 2 else (square_of_sum - count) / (count * (count - 1))


def _need(chunk: Tensor | None) -> Tensor:
    if chunk is None:
        raise KeyError(PARAMS)
    return chunk


def _or_zero(chunk: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if chunk is None else chunk
