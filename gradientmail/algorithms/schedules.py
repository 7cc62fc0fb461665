"""Schedules: what the outer learning rate is multiplied with, by the version that a round makes.

Only additions, multiplications, divisions and roots, which every machine rounds alike: a library's
``cos`` or ``pow`` would part two closers.
"""

import math
from typing import Annotated, Final, Protocol

import msgspec

from gradientmail.choices import Choice, Choices

Versions = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
Part = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class Schedule(Protocol):
    """A function of the version, from 1 on."""

    def factor(self, version: int) -> float:
        """Return what the learning rate is multiplied with in the round that makes ``version``."""
        ...


class Constant(Choice, frozen=True):
    """Always 1, after ``warmup_versions`` in which it rises to that in equal steps.

    Attributes:
        warmup_versions: Versions in which the factor rises from 0; the first has 1 / (this + 1).
    """

    warmup_versions: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] = 0

    def factor(self, version: int) -> float:
        """See ``Schedule.factor``.

        >>> [Constant(warmup_versions=3).factor(version) for version in (1, 2, 3, 4, 5)]
        [0.25, 0.5, 0.75, 1.0, 1.0]
        """
        warm = min(1.0, version / (self.warmup_versions + 1))
        return warm * self._after(max(0, version - self.warmup_versions - 1))

    def _after(self, versions: int) -> float:  # noqa: ARG002 - others depend on it
        """Return the factor so many versions after the first full one."""
        return 1.0


class Linear(Constant, frozen=True, kw_only=True):
    """Falls in equal steps to ``end``, where it stays.

    Attributes:
        warmup_versions: See ``constant``.
        versions: In how many versions it falls.
        end: What it falls to.
    """

    versions: Versions
    end: Part = 0.0

    def _after(self, versions: int) -> float:
        return 1.0 - (1.0 - self.end) * min(1.0, versions / self.versions)


class Cosine(Constant, frozen=True, kw_only=True):
    """Falls along half a cosine to ``end``, where it stays.

    Source: SGDR (arXiv 1608.03983), without restarts.

    Attributes:
        warmup_versions: See ``constant``.
        versions: In how many versions it falls.
        end: What it falls to.
    """

    versions: Versions
    end: Part = 0.0

    def _after(self, versions: int) -> float:
        wave = 0.5 + 0.5 * half_turn_cosine(min(1.0, versions / self.versions))
        return self.end + (1.0 - self.end) * wave


class InverseSqrt(Constant, frozen=True):
    """Falls as ``1 / sqrt(1 + versions)``.

    Source: The schedule of the Transformer (arXiv 1706.03762).

    Attributes:
        warmup_versions: See ``constant``.
    """

    def _after(self, versions: int) -> float:
        return 1.0 / math.sqrt(1.0 + versions)


class Steps(Constant, frozen=True, kw_only=True):
    """Multiplied with ``by`` every so many versions.

    Attributes:
        warmup_versions: See ``constant``.
        every_versions: Versions from one fall to the next.
        by: What each fall multiplies with.
    """

    every_versions: Versions
    by: Part = 0.5

    def _after(self, versions: int) -> float:
        factor = 1.0
        for _ in range(min(versions // self.every_versions, 10_000)):
            factor *= self.by
        return factor


CONSTANT: Final = Constant()

SCHEDULES: Final[Choices[Schedule]] = Choices(
    "outer_schedule",
    {
        "constant": Constant,
        "linear": Linear,
        "cosine": Cosine,
        "inverse-sqrt": InverseSqrt,
        "steps": Steps,
    },
)


def half_turn_cosine(part: float) -> float:
    """Return ``cos(pi * part)`` for ``part`` from 0 to 1, with the same bits everywhere.

    >>> half_turn_cosine(0.0), half_turn_cosine(0.5), half_turn_cosine(1.0)
    (1.0, 0.0, -1.0)
    """
    if part in (0.0, 1.0):  # exactly, which the series misses by a rounding
        return 1.0 - 2.0 * part
    angle = math.pi * (0.5 - part)
    square, series = angle * angle, 1.0
    for term in range(24, 0, -2):
        series = 1.0 - series * square / (term * (term + 1))
    return max(-1.0, min(1.0, angle * series))
