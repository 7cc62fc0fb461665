"""Client selection: which of the live learners a round asks for.

A selection is a pure function of run, round and learners, so any closer that sees the same
learners asks for the same ones, and a closer that takes over asks for those its predecessor did.
Each learner's rank in a round is a hash of run, round and its name: when one of those asked falls
silent, the next in rank takes its place, and nobody else's changes.
"""

import hashlib
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Final, Protocol

import msgspec

from gradientmail.choices import Choice, Choices

Fleet = Mapping[str, AbstractSet[str]]
"""The tags of every live learner, by its name."""


class Selection(Protocol):
    """A rule that picks learners."""

    def asked(self, run: str, round_index: int, fleet: Fleet) -> frozenset[str]:
        """Return who of ``fleet`` a round asks for."""
        ...


class Everyone(Choice, frozen=True):
    """All live learners."""

    def asked(self, run: str, round_index: int, fleet: Fleet) -> frozenset[str]:  # noqa: ARG002
        """See ``Selection.asked``."""
        return frozenset(fleet)


class RandomFraction(Choice, frozen=True):
    """``max(1, floor(fraction N + 0.5))`` of the N live learners, others in each round.

    Source: FedAvg (arXiv 1602.05629), C.

    Attributes:
        fraction: The share.
    """

    fraction: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)]

    def asked(self, run: str, round_index: int, fleet: Fleet) -> frozenset[str]:
        """See ``Selection.asked``."""
        ranked = sorted(fleet, key=lambda learner: (rank(run, round_index, learner), learner))
        return frozenset(ranked[: clients(self.fraction, len(ranked))])


class Tagged(Choice, frozen=True):
    """Learners that have all of some tags.

    Attributes:
        tags: What a learner must have said of itself.
    """

    tags: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]

    def asked(self, run: str, round_index: int, fleet: Fleet) -> frozenset[str]:  # noqa: ARG002
        """See ``Selection.asked``."""
        return frozenset(name for name, tags in fleet.items() if tags >= set(self.tags))


SELECTIONS: Final[Choices[Selection]] = Choices(
    "selection", {"all": Everyone, "random": RandomFraction, "tags": Tagged}
)
"""By the name that ``selection`` takes."""


def clients(fraction: float, count: int) -> int:
    """Return how many of ``count`` learners a fraction is: at least one.

    >>> [clients(0.3, count) for count in (1, 2, 5, 10)]
    [1, 1, 2, 3]
    """
    return max(1, math.floor(fraction * count + 0.5))


def rank(run: str, round_index: int, learner: str) -> int:
    """Return a number that looks random, the same on every machine."""
    digest = hashlib.sha256(f"{run}/{round_index}/{learner}".encode()).digest()
    return int.from_bytes(digest[:8], "big")
