"""One round's arithmetic, chunk by chunk over anything that can be read and written by range."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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
from gradientmail.algorithms.merge import (
    WEIGHTS,
    Coefficients,
    WeightedMean,
    clip_factors,
    reciprocal,
)
from gradientmail.algorithms.reduce import BLOCK, SquareSums, per_block, root_of_squares
from gradientmail.codecs.layout import FragmentLayout, chunks


@dataclass
class Aggregation:
    """One round's arithmetic. Memory: a few chunks, however large the fragment and the round."""

    aggregator: Aggregator
    layout: FragmentLayout
    counters: Sequence[Counters]
    sources: Sequence[Readable]
    _merged: SquareSums = field(init=False)
    _units: SquareSums = field(init=False)

    def __post_init__(self) -> None:
        self._merged = SquareSums(self.layout)
        self._units = SquareSums(self.layout)

    def run(self, state: State, sink: Sink) -> Outcome:
        """Write the next version, reading the state once, contributions once or twice."""
        rule, parameters = self.aggregator, slice(self.layout.parameter_slots)
        norms = [root_of_squares(own.norms[parameters]) for own in self.counters]
        weights = [WEIGHTS[rule.weights](own.tokens, own.steps) for own in self.counters]
        clips = clip_factors(norms, rule.clip_ratio)
        coefficients = self._coefficients(weights, clips)
        units = [[reciprocal(norm)] * len(self.layout.slots) for norm in norms]
        present = self._present()
        for start, stop in self._ranges():
            merged, unit = self._combine(start, stop, coefficients, units)
            self._merged.add(start, merged)
            self._units.add(start, unit)
            self._step(state, sink, start, merged, present)
        moved = sum(reciprocal(norm) > 0.0 for norm in norms)
        return Outcome(
            weights=tuple(weights),
            norms=tuple(norms),
            clips=tuple(clips),
            cosine=_cosine(math.fsum(self._units.squares()[parameters]), moved),
            norm=math.sqrt(math.fsum(self._merged.squares()[parameters])),
        )

    def _present(self) -> list[bool]:
        """Whether any contribution holds each tensor: else it keeps its value and momentum."""
        return [
            any(own.norms[slot] is not None for own in self.counters)
            for slot in range(len(self.layout.slots))
        ]

    def _ranges(self) -> list[tuple[int, int]]:
        """Chunks of the parameters, then of the buffers: no chunk holds both."""
        end = self.layout.parameters_end
        return [*chunks(0, end), *chunks(end, self.layout.numel)]

    def _coefficients(self, weights: Sequence[float], clips: Sequence[float]) -> Coefficients:
        """Return what to multiply each contribution's tensors by.

        The merge rule sees clipped contributions; the data is scaled as it is read.
        """
        clipped = [
            [None if norm is None else norm * clip for norm in own.norms]
            for own, clip in zip(self.counters, clips, strict=True)
        ]

        def combined_norms(coefficients: Coefficients) -> list[float]:
            sums = SquareSums(self.layout)
            for start, stop in self._ranges():
                sums.add(start, self._combine(start, stop, _scaled(coefficients, clips))[0])
            return sums.norms()

        names = [slot.name for slot in self.layout.slots]
        rules = (self.aggregator.merge, WeightedMean())
        merged, mean = (r.coefficients(names, weights, clipped, combined_norms) for r in rules)
        buffers = self.layout.parameter_slots
        rows = [row[:buffers] + own[buffers:] for row, own in zip(merged, mean, strict=True)]
        return _scaled(rows, clips)

    def _combine(
        self, start: int, stop: int, coefficients: Coefficients, units: Coefficients | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sum the contributions' chunk under two sets of coefficients, in the order given."""
        total, unit = torch.zeros(stop - start), torch.zeros(stop - start)
        for index, source in enumerate(self.sources):
            chunk = source.read(start, stop).view(-1, BLOCK)
            if units is not None:
                own = per_block(self.layout, units[index], start, stop)
                unit += (chunk * own).view(-1)
            total += chunk.mul_(per_block(self.layout, coefficients[index], start, stop)).view(-1)
        return total, unit

    def _step(
        self, state: State, sink: Sink, start: int, merged: Tensor, present: Sequence[bool]
    ) -> None:
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
        if not all(present):
            mask = per_block(self.layout, present, start, stop).expand(-1, BLOCK).reshape(-1) > 0.0
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
