"""Weights: how much a contribution counts, from what it says of itself."""

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Annotated, Final, Protocol

import msgspec

from gradientmail.choices import Choice, Choices


@dataclass(frozen=True, slots=True)
class Work:
    """What is behind a contribution.

    Attributes:
        tokens: Tokens trained on.
        steps: Inner steps.
        samples: Examples trained on; 0 where the learner's loop counts none.
        staleness: Versions between its base and the version before the one that is made.
    """

    tokens: int
    steps: int
    samples: int = 0
    staleness: int = 0


class Weights(Protocol):
    """A rule that weighs contributions."""

    def weigh(self, work: Work) -> float:
        """Return what a contribution weighs, before normalization."""
        ...


class TokensSquaredPerStep(Choice, frozen=True):
    """``tokens^2 / steps``: much work, and in large batches.

    Source: Decoupled DiLoCo (arXiv 2604.21428).

    >>> TokensSquaredPerStep().weigh(Work(tokens=100, steps=10))
    1000.0
    """

    def weigh(self, work: Work) -> float:
        """See ``Weights.weigh``."""
        return work.tokens * work.tokens / work.steps


class Tokens(Choice, frozen=True):
    """``tokens``: every token counts the same."""

    def weigh(self, work: Work) -> float:
        """See ``Weights.weigh``."""
        return float(work.tokens)


class Samples(Choice, frozen=True):
    """``samples``: every example counts the same, however long it is.

    Learners must count them: ``learner.step(tokens=..., samples=...)``.

    Source: FedAvg (arXiv 1602.05629).
    """

    def weigh(self, work: Work) -> float:
        """See ``Weights.weigh``."""
        return float(work.samples)


class Uniform(Choice, frozen=True):
    """1: every contribution counts the same.

    Source: DiLoCo (arXiv 2311.08105).
    """

    def weigh(self, work: Work) -> float:  # noqa: ARG002 - see Weights
        """See ``Weights.weigh``."""
        return 1.0


class TokensByStaleness(Choice, frozen=True):
    """``tokens / (1 + decay * staleness)``: late work counts less.

    Source: Staleness-aware asynchronous SGD (arXiv 1511.05950), with a rate.

    Attributes:
        decay: How fast (lambda).

    >>> TokensByStaleness(decay=0.5).weigh(Work(tokens=100, steps=10, staleness=2))
    50.0
    """

    decay: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 1.0

    def weigh(self, work: Work) -> float:
        """See ``Weights.weigh``."""
        return work.tokens / (1.0 + self.decay * work.staleness)


class TokensPower(Choice, frozen=True):
    """``tokens^gamma``: from 0, every contribution alike, to 1, every token alike.

    Attributes:
        gamma: The exponent.

    >>> TokensPower(gamma=0.5).weigh(Work(tokens=100, steps=10))
    10.0
    """

    gamma: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] = 0.5

    def weigh(self, work: Work) -> float:
        """See ``Weights.weigh``. In decimals: a machine's ``pow`` may differ from another's."""
        return float(_DECIMALS.power(Decimal(work.tokens), Decimal(self.gamma)))


_DECIMALS: Final = Context(prec=30)

WEIGHTS: Final[Choices[Weights]] = Choices(
    "weights",
    {
        "tokens2-per-step": TokensSquaredPerStep,
        "tokens": Tokens,
        "samples": Samples,
        "uniform": Uniform,
        "tokens-by-staleness": TokensByStaleness,
        "tokens-power": TokensPower,
    },
)
"""By the name that ``weights`` takes."""
