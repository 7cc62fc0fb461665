"""Alignment: what a commit does to a learner's local parameters.

Four vectors of one fragment take part: the old ``anchor``, the newly ``committed`` parameters,
the ``local`` ones, and the ``snapshot``: what was local when the contribution was made (the
anchor, where none was made). ``local - snapshot`` is what no contribution holds yet.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor


class Alignment(Protocol):
    """A rule that puts a commit into local parameters."""

    @property
    def keeps(self) -> bool:
        """Whether steps trained since the snapshot survive, and so stay counted."""
        ...

    @property
    def elementwise(self) -> bool:
        """Whether each element is aligned by itself: vectors may then come in pieces."""
        ...

    @property
    def owes(self) -> bool:
        """Whether kept steps need not be in the local parameters: they are sent all the same."""
        ...

    def align(self, anchor: Tensor, committed: Tensor, local: Tensor, snapshot: Tensor) -> Tensor:
        """Return the new local parameters."""
        ...


@dataclass(frozen=True)
class Overwrite:
    """Take the commit (DiLoCo, arXiv 2311.08105). Steps trained past publishing are lost."""

    keeps: bool = False
    elementwise: bool = True
    owes: bool = False

    def align(self, anchor: Tensor, committed: Tensor, local: Tensor, snapshot: Tensor) -> Tensor:  # noqa: ARG002
        """See ``Alignment.align``."""
        return committed


@dataclass(frozen=True)
class Blend:
    """``(1 - mixing) committed + mixing local`` (Streaming DiLoCo, arXiv 2501.18512, alpha)."""

    mixing: float
    elementwise: bool = True
    owes: bool = False

    @property
    def keeps(self) -> bool:
        """See ``Alignment.keeps``."""
        return self.mixing > 0.0

    def align(self, anchor: Tensor, committed: Tensor, local: Tensor, snapshot: Tensor) -> Tensor:  # noqa: ARG002
        """See ``Alignment.align``."""
        return committed * (1.0 - self.mixing) + local * self.mixing


@dataclass(frozen=True)
class Carry:
    """``committed + (local - snapshot)``: keep every step trained since the snapshot."""

    keeps: bool = True
    elementwise: bool = True
    owes: bool = False

    def align(self, anchor: Tensor, committed: Tensor, local: Tensor, snapshot: Tensor) -> Tensor:  # noqa: ARG002
        """See ``Alignment.align``."""
        return committed + (local - snapshot)


@dataclass(frozen=True)
class Adaptive:
    """Carry as much of the drift ``local - snapshot`` as agrees with the commit.

    ``committed + max(0, cos(drift, committed - anchor)) drift``.
    """

    keeps: bool = True
    elementwise: bool = False
    owes: bool = False

    def align(self, anchor: Tensor, committed: Tensor, local: Tensor, snapshot: Tensor) -> Tensor:
        """See ``Alignment.align``."""
        drift, movement = local - snapshot, committed - anchor
        lengths = math.sqrt(float(torch.dot(drift, drift)) * float(torch.dot(movement, movement)))
        if lengths == 0.0:
            return committed
        return committed + drift * max(0.0, float(torch.dot(drift, movement)) / lengths)


@dataclass(frozen=True)
class Eager:
    """The commit, with this learner's newest steps in place of those the commit holds of it.

    ``committed + mixing ((local - snapshot) - (snapshot - anchor))``, with ``mixing`` what one of
    the learner's steps moves a version by: ``outer_lr (1 + momentum) / learners``. All steps since
    the snapshot are in its next contribution, whatever of them is in its parameters.

    Source: eager updates (arXiv 2502.12996): the own part of the delayed mean is the newest there
    is, the others' is a round old.
    """

    mixing: float
    keeps: bool = True
    elementwise: bool = True
    owes: bool = True

    def align(self, anchor: Tensor, committed: Tensor, local: Tensor, snapshot: Tensor) -> Tensor:
        """See ``Alignment.align``."""
        return committed + ((local - snapshot) - (snapshot - anchor)) * self.mixing


ALIGNMENTS: Final[Mapping[str, Callable[[float], Alignment]]] = {
    "overwrite": lambda _: Overwrite(),
    "blend": Blend,
    "carry": lambda _: Carry(),
    "adaptive": lambda _: Adaptive(),
    "eager": Eager,
}
