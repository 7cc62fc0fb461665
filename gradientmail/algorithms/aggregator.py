"""The aggregator: contributions to one fragment in, the fragment's next version out.

``aggregation.Aggregation`` does it chunk by chunk over anything that can be read and written by
range, so a closer never holds a tensor. ``Aggregator.close_round`` is the same over vectors in
memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from torch import Tensor

from gradientmail.algorithms.guards import NO_GUARD, Guard
from gradientmail.algorithms.merge import Merge, Norms, RangeMerge
from gradientmail.algorithms.outer import OuterOptimizer
from gradientmail.algorithms.schedules import CONSTANT, Schedule
from gradientmail.algorithms.sights import Sight
from gradientmail.algorithms.weights import Weights, Work
from gradientmail.codecs.layout import FragmentLayout
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

    @property
    def version(self) -> int:
        """Which version it is."""
        ...

    @property
    def outer_steps(self) -> int:
        """Outer steps taken up to it: a round in which nothing counted takes none."""
        ...

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
        samples: Examples in them; 0 where its learner counts none.
        norms: L2 norm of each tensor, in layout order; None where absent.
        staleness: Versions between its base and the version before the one that is made.
    """

    steps: int
    tokens: int
    norms: Norms
    samples: int = 0
    staleness: int = 0

    @property
    def work(self) -> Work:
        """What it is weighed by."""
        return Work(
            tokens=self.tokens,
            steps=self.steps,
            samples=self.samples,
            staleness=self.staleness,
        )


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
        sights: How far each went from the new version.
        suppressed: Whether the guard left it out.
        scale: What schedule and guard multiplied the outer learning rate with.
    """

    weights: tuple[float, ...]
    norms: tuple[float, ...]
    clips: tuple[float, ...]
    cosine: float | None
    norm: float
    sights: tuple[Sight, ...] = ()
    suppressed: tuple[bool, ...] = ()
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class FragmentState:
    """A fragment at one version, in memory: flat float32 vectors of the layout's length.

    Attributes:
        sections: ``params`` as published, and the outer optimizer's state (``momentum``), which
            begins where it is missing.
        outer_steps: See ``State.outer_steps``.
    """

    layout: FragmentLayout
    version: int
    sections: Mapping[str, Tensor]
    outer_steps: int = 0

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
        weights: What each counts.
        outer: The outer optimizer.
        clip_ratio: See ``merge.clip_factors``.
        schedule: Of the outer learning rate.
        outer_clip_norm: Norm to which a longer merged pseudo-gradient is cut before the step.
        guard: What to do about a learner that went elsewhere.

    Float buffers are no parameters: they become their plain weighted mean, whatever the rule (a
    variance that is extrapolated may turn negative), of what is against the newest version.
    """

    merge: Merge | RangeMerge
    weights: Weights
    outer: OuterOptimizer
    clip_ratio: float | None = None
    schedule: Schedule = CONSTANT
    outer_clip_norm: float | None = None
    guard: Guard = NO_GUARD

    def shortfall(self, contributions: int) -> str | None:
        """Return what a round of so many contributions lacks; None where it lacks nothing.

        A round without any makes no step, and lacks nothing for that.
        """
        least = self.merge.least
        if not contributions or contributions >= least:
            return None
        name = type(self.merge).__name__
        return f"{name} needs {least} contributions, and there are {contributions}"

    def close_round(
        self, state: FragmentState, contributions: Sequence[Contribution]
    ) -> RoundResult:
        """Return the next version of ``state``; equal arguments give equal bits on any machine.

        Raises:
            NonFiniteError: the next version would hold NaN or infinity.
            TooFewError: the rule needs more contributions than there are, or the guard leaves.
        """
        from gradientmail.algorithms.aggregation import Aggregation  # noqa: PLC0415 - uses this

        layout = state.layout
        sink = _Memory(
            {name: torch.zeros(layout.numel) for name in (PARAMS, *self.outer.sections)}
        )
        counters = [contribution.counters for contribution in contributions]
        outcome = Aggregation(self, layout, counters, contributions).run(state, sink)
        following = replace(
            state,
            version=state.version + 1,
            outer_steps=state.outer_steps + 1,
            sections=sink.vectors,
        )
        return RoundResult(state=following, outcome=outcome)


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
