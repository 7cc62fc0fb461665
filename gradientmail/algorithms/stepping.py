"""The outer step on one range, and what is published of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import MASTER, PARAMS, UPDATE, Sink, State
from gradientmail.algorithms.outer import OuterOptimizer, Turn
from gradientmail.algorithms.reduce import BLOCK, per_block
from gradientmail.codecs.layout import FragmentLayout


@dataclass(frozen=True)
class Stepping:
    """One version's step.

    Args:
        present: Of each tensor, whether any contribution that counts holds it: else it keeps its
            value and the optimizer's state (a step of zero would still move what has momentum).
        clip: What the merged pseudo-gradient of parameters is scaled by first.
    """

    outer: OuterOptimizer
    layout: FragmentLayout
    present: Sequence[bool]
    turn: Turn
    clip: float

    def take(self, state: State, sink: Sink, start: int, merged: Tensor) -> tuple[Tensor, Tensor]:
        """Write the next version's range from ``start`` on; return what is published, old, new."""
        stop = start + merged.numel()
        before = published(state, start, stop)
        kept = state.read(MASTER, start, stop)
        master = before if kept is None else kept
        old = self._old(state, start, merged)
        if start < self.layout.parameters_end:
            gradient = merged if self.clip == 1.0 else merged * self.clip
            following, new = self.outer.update(master, gradient, old, self.turn)
        else:
            following, new = master - merged, old
        if not all(self.present):
            mask = per_block(self.layout, self.present, start, stop).expand(-1, BLOCK)
            mask = mask.reshape(-1) > 0.0
            following = torch.where(mask, following, master)
            new = {name: torch.where(mask, vector, old[name]) for name, vector in new.items()}
        for name, vector in new.items():
            sink.write(name, start, vector)
        return before, _publish(sink, start, before, following)

    def _old(self, state: State, start: int, like: Tensor) -> dict[str, Tensor]:
        """Return the optimizer's state; what the version before has not begins now."""
        stop = start + like.numel()
        found = {name: state.read(name, start, stop) for name in self.outer.sections}
        held = {name: vector for name, vector in found.items() if vector is not None}
        return held if len(held) == len(found) else {**self.outer.init(like), **held}


def published(state: State, start: int, stop: int) -> Tensor:
    """Return elements ``[start, stop)`` of a version's parameters.

    Raises:
        KeyError: it has none.
    """
    found = state.read(PARAMS, start, stop)
    if found is None:
        raise KeyError(PARAMS)
    return found


def _publish(sink: Sink, start: int, before: Tensor, master: Tensor) -> Tensor:
    """Write what learners receive: exactly old + update. The master keeps the rounding."""
    if UPDATE in sink.sections:
        update = sink.write(UPDATE, start, master - before)
        new = sink.write(PARAMS, start, before + update)
    else:
        new = sink.write(PARAMS, start, master)
    if MASTER in sink.sections:
        sink.write(MASTER, start, master)
    return new
