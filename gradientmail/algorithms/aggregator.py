"""The aggregator: contributions to one fragment in, the fragment's next version out.

``Aggregation`` does it chunk by chunk over anything that can be read and written by range, so a
closer never holds a tensor. ``Aggregator.close_round`` is the same over vectors in memory.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import torch
from torch import Tensor

from gradientmail.algorithms.merge import (
    WEIGHTS,
    Coefficients,
    Merge,
    Norms,
    WeightedMean,
    clip_factors,
    reciprocal,
)
from gradientmail.algorithms.outer import OuterOptimizer
from gradientmail.algorithms.reduce import BLOCK, SquareSums, per_block, root_of_squares
from gradientmail.codecs.layout import FragmentLayout, chunks
from gradientmail.errors import NonFiniteError

PARAMS: Final = "params"
MASTER: Final = "master"
UPDATE: Final = "update"


class Readable(Protocol):
    """A contribution's pseudo-gradient, by range, decoded."""

    def read(self, start: int, stop: int) -> Tensor:
        """Return elements ``[start, stop)`` as float32; the caller may overwrite the result."""
        ...


class State(Protocol):
    """A fragment at one version: named vectors, by range."""

    def read(self, section: str, start: int, stop: int) -> Tensor | None:
        """Return elements ``[start, stop)`` of a section; None where the version has none."""
        ...


class Sink(Protocol):
    """Where the next version goes."""

    @property
    def sections(self) -> frozenset[str]:
        """The vectors it takes."""
        ...

    def write(self, section: str, start: int, chunk: Tensor) -> Tensor:
        """Write a chunk; return it as every reader will decode it.

        Raises:
            NonFiniteError: it holds NaN or infinity.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What a contribution says of itself.

    Attributes:
        steps: Inner steps in it.
        tokens: Tokens in them.
        norms: L2 norm of each tensor, in layout order; None where absent.
    """

    steps: int
    tokens: int
    norms: Norms


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What closing found, beside the next version itself.

    Norms and cosine are over all parameters of the fragment, without its buffers: statistics may
    move a thousand times as far as weights, and would hide what those do.

    Attributes:
        weights: Of each contribution, before normalization.
        norms: L2 norm of each, before clipping.
        clips: What each was scaled by.
        cosine: Mean pairwise cosine; None where fewer than two moved.
        norm: L2 norm of the merged pseudo-gradient.
    """

    weights: tuple[float, ...]
    norms: tuple[float, ...]
    clips: tuple[float, ...]
    cosine: float | None
    norm: float


@dataclass(frozen=True, kw_only=True)
class FragmentState:
    """A fragment at one version, in memory: flat float32 vectors of the layout's length.

    Attributes:
        sections: ``params`` as published, and the outer optimizer's state (``momentum``); empty
            state sections start at zero.
    """

    layout: FragmentLayout
    version: int
    sections: Mapping[str, Tensor]

    def read(self, section: str, start: int, stop: int) -> Tensor | None:
        """See ``State.read``."""
        vector = self.sections.get(section)
        return None if vector is None else vector[start:stop].clone()


@dataclass(frozen=True, kw_only=True)
class Contribution:
    """One learner's pseudo-gradient ``anchor - theta``, in memory: flat float32, decoded."""

    counters: Counters
    delta: Tensor

    def read(self, start: int, stop: int) -> Tensor:
        """See ``Readable.read``."""
        return self.delta[start:stop].clone()


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """A closed round: the fragment's next version, and what was found on the way."""

    state: FragmentState
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Aggregator:
    """How contributions become the next version.

    Args:
        merge: Several pseudo-gradients to one.
        weights: Name in ``merge.WEIGHTS``.
        outer: The outer optimizer.
        clip_ratio: See ``merge.clip_factors``.

    Float buffers are no parameters: they become their plain weighted mean, whatever the rule (a
    variance that is extrapolated may turn negative).
    """

    merge: Merge
    weights: str
    outer: OuterOptimizer
    clip_ratio: float | None = None

    def close_round(
        self, state: FragmentState, contributions: Sequence[Contribution]
    ) -> RoundResult:
        """Return the next version of ``state``; equal arguments give equal bits on any machine.

        Raises:
            NonFiniteError: the next version would hold NaN or infinity.
        """
        layout = state.layout
        sink = _Memory(
            {name: torch.zeros(layout.numel) for name in (PARAMS, *self.outer.sections)}
        )
        counters = [contribution.counters for contribution in contributions]
        outcome = Aggregation(self, layout, counters, contributions).run(state, sink)
        following = replace(state, version=state.version + 1, sections=sink.vectors)
        return RoundResult(state=following, outcome=outcome)


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


@dataclass
class _Memory:
    vectors: dict[str, Tensor]

    @property
    def sections(self) -> frozenset[str]:
        return frozenset(self.vectors)

    def write(self, section: str, start: int, chunk: Tensor) -> Tensor:
        stop = start + chunk.numel()
        if not bool(torch.isfinite(chunk).all()):
            raise NonFiniteError(f"{section} would not be finite in elements {start} to {stop}")
        self.vectors[section][start:stop] = chunk
        return chunk


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
