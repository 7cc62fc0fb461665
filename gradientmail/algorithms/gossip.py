"""Gossip: what a learner makes of its own parameters and its neighbours', without a closer.

Of each learner there are the ``slow`` parameters, which a round left it with, and the ``fast``
ones, to which its inner steps led from there. A rule says what of them a learner posts, and what
the next slow ones are; the weights are a row of a doubly stochastic matrix.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

import msgspec
from torch import Tensor

from gradientmail.algorithms.outer.base import Rate, Share
from gradientmail.choices import Choice, Choices

Pull = Annotated[float, msgspec.Meta(gt=0.0, le=4.0)]


class Gossip(Protocol):
    """A rule for mixing."""

    @property
    def posts_slow(self) -> bool:
        """Whether slow parameters are posted beside what inner steps made of them."""
        ...

    def mix(
        self,
        weights: Sequence[float],
        slow: Sequence[Tensor],
        fast: Sequence[Tensor],
        momentum: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the next slow parameters and momentum of the first of those given.

        Args:
            weights: What each counts, 1 in all; of whoever mixes first.
            slow: Their slow parameters; those of the first alone where none are posted.
            fast: Their fast parameters.
            momentum: What the last call returned; None before.
        """
        ...


class Average(Choice, frozen=True):
    """``sum w fast``: decentralized averaging of parameters.

    Source: D-PSGD (arXiv 1705.09056).
    """

    @property
    def posts_slow(self) -> bool:
        """See ``Gossip.posts_slow``."""
        return False

    def mix(
        self,
        weights: Sequence[float],
        slow: Sequence[Tensor],  # noqa: ARG002 - see Gossip
        fast: Sequence[Tensor],
        momentum: Tensor | None,  # noqa: ARG002 - see Gossip
    ) -> tuple[Tensor, Tensor | None]:
        """See ``Gossip.mix``."""
        return _weighted(weights, fast), None


class NoLoCo(Choice, frozen=True):
    """An outer momentum step along the pair's mean, and a pull towards its mean slow parameters.

    ``m = momentum m - lr sum w (slow - fast) - pull (slow - sum w slow)``, then ``slow += m``.
    With (momentum, lr, pull) = (0, 1, 1) it is ``Average``.

    Source: NoLoCo (arXiv 2506.10911), the step; ``pull`` 1 is ours. What two learners differ in
    dies out for any pull below ``2 (1 + momentum)`` where they always meet; over random pairs
    momentum .9 grows without bound on quadratics, and .5 does not.

    Attributes:
        lr: Learning rate of the outer step.
        momentum: What m keeps from round to round.
        pull: Share of the distance between slow parameters that one round closes.
    """

    lr: Rate = 0.7
    momentum: Share = 0.5
    pull: Pull = 1.0

    @property
    def posts_slow(self) -> bool:
        """See ``Gossip.posts_slow``."""
        return True

    def mix(
        self,
        weights: Sequence[float],
        slow: Sequence[Tensor],
        fast: Sequence[Tensor],
        momentum: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        """See ``Gossip.mix``."""
        mean_slow = _weighted(weights, slow)
        move = (_weighted(weights, fast) - mean_slow) * self.lr - (slow[0] - mean_slow) * self.pull
        if momentum is not None:
            move = momentum * self.momentum + move
        return slow[0] + move, move


GOSSIPS: Final = Choices[Gossip]("gossip", {"average": Average, "noloco": NoLoCo})
"""By the name that ``gossip`` takes."""


def _weighted(weights: Sequence[float], vectors: Sequence[Tensor]) -> Tensor:
    total = vectors[0] * weights[0]
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        total = total + vector * weight
    return total
