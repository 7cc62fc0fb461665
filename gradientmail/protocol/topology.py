"""Who mixes with whom when there is no closer: named graphs of learners, and the weights on them.

A graph is made anew for each round from the names of the learners that are live, in their order,
so it needs no configuration of its own and heals when somebody leaves. The weights are those of
Metropolis and Hastings: learners i and j with d_i and d_j neighbours give each other
``1 / (1 + max(d_i, d_j))``, and keep the rest. On any graph the matrix is symmetric and doubly
stochastic: nobody's parameters count more than another's, and the mean of all stays what it was.

Source: Xiao and Boyd, "Fast linear iterations for distributed averaging" (2004).
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Annotated, Final, Protocol

import msgspec

from gradientmail.choices import Choice, Choices

Edge = tuple[str, str]


class Topology(Protocol):
    """A rule that connects learners."""

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:
        """Yield pairs of different ``names``, which are sorted; ``turn`` names run and round."""
        ...


class Ring(Choice, frozen=True):
    """Each with the one before and the one after it."""

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:  # noqa: ARG002
        """See ``Topology.edges``."""
        for at, name in enumerate(names):
            yield name, names[(at + 1) % len(names)]


class Full(Choice, frozen=True):
    """Each with everyone: the mean of all, after one round."""

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:  # noqa: ARG002
        """See ``Topology.edges``."""
        yield from combinations(names, 2)


class Star(Choice, frozen=True):
    """Each with the first; the others meet through it."""

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:  # noqa: ARG002
        """See ``Topology.edges``."""
        for name in names[1:]:
            yield names[0], name


class Exponential(Choice, frozen=True):
    """Each with those 1, 2, 4, 8, ... places away: few neighbours, and nobody is far.

    Source: Stochastic Gradient Push (arXiv 1811.10792).
    """

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:  # noqa: ARG002
        """See ``Topology.edges``."""
        hop = 1
        while hop < len(names):
            for at, name in enumerate(names):
                yield name, names[(at + hop) % len(names)]
            hop *= 2


class RandomPairs(Choice, frozen=True):
    """Two and two, others in each round; of an odd number one stays by itself.

    Source: Boyd et al., "Randomized gossip algorithms" (2006); NoLoCo (arXiv 2506.10911).
    """

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:
        """See ``Topology.edges``."""
        drawn = sorted(names, key=lambda name: hashlib.sha256(f"{turn}/{name}".encode()).digest())
        yield from zip(drawn[0::2], drawn[1::2], strict=False)


class Graph(Choice, frozen=True):
    """The pairs that are written down, such as ``[["ann", "bob"]]``, as far as both are live.

    Attributes:
        pairs: Names of learners that mix.
    """

    pairs: Annotated[tuple[Edge, ...], msgspec.Meta(min_length=1)]

    def edges(self, names: Sequence[str], turn: str) -> Iterator[Edge]:  # noqa: ARG002
        """See ``Topology.edges``."""
        yield from (pair for pair in self.pairs if set(pair) <= set(names))


TOPOLOGIES: Final[Choices[Topology]] = Choices(
    "topology",
    {
        "ring": Ring,
        "full": Full,
        "star": Star,
        "exponential": Exponential,
        "random-pairs": RandomPairs,
        "graph": Graph,
    },
)
"""By the name that ``topology`` takes."""


def neighbours(topology: Topology, names: Sequence[str], turn: str) -> dict[str, set[str]]:
    """Return whom each of ``names`` mixes with."""
    ordered = sorted(names)
    found: dict[str, set[str]] = {name: set() for name in ordered}
    for one, other in topology.edges(ordered, turn):
        if one != other:
            found[one].add(other)
            found[other].add(one)
    return found


def mixing(topology: Topology, names: Sequence[str], turn: str) -> dict[str, dict[str, float]]:
    """Return the weights of a round: of each learner, what it takes of whom, itself included.

    >>> mixing(Star(), ["a", "b", "c"], "")["b"]
    {'a': 0.3333333333333333, 'b': 0.6666666666666667}
    """
    met = neighbours(topology, names, turn)
    weights = {}
    for name, others in met.items():
        taken = {other: 1.0 / (1 + max(len(others), len(met[other]))) for other in sorted(others)}
        weights[name] = {**taken, name: 1.0 - sum(taken.values())}
    return weights
