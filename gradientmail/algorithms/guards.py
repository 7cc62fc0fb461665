"""Guards: what to do about a learner that went elsewhere than the round; nothing, by default.

A guard looks at the round as it would be with everyone in it, one step of 1.0 along the merged
pseudo-gradient, and decides before the version is made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Protocol

import msgspec

from gradientmail.algorithms.sights import Sight
from gradientmail.choices import Choice, Choices

Divergence = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a guard decided.

    Attributes:
        suppressed: Of each contribution, whether it weighs nothing in this round.
        scale: What the outer learning rate is multiplied with.
    """

    suppressed: tuple[bool, ...]
    scale: float = 1.0


class Guard(Protocol):
    """A rule for what is seen of a round."""

    @property
    def looks(self) -> bool:
        """Whether it needs to look at the data first: one more pass over a part of it."""
        ...

    def judge(self, sights: Sequence[Sight]) -> Ruling:
        """Return what to do in a round in which contributions are seen so."""
        ...


class NoGuard(Choice, frozen=True):
    """Nothing is done; cosines and divergences are recorded all the same."""

    @property
    def looks(self) -> bool:
        """See ``Guard.looks``."""
        return False

    def judge(self, sights: Sequence[Sight]) -> Ruling:
        """See ``Guard.judge``."""
        return Ruling((False,) * len(sights))


class Suppress(Choice, frozen=True):
    """Contributions beyond a bound weigh nothing, the worst first, and never half of a round.

    Below three contributions there is no majority to differ from: none is suppressed.

    Attributes:
        least_cosine: A contribution whose cosine to the merged one is below this is suppressed.
        most_divergence: One whose divergence is above this is too; none knows no such bound.
    """

    least_cosine: Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)] = 0.0
    most_divergence: Divergence | None = None

    @property
    def looks(self) -> bool:
        """See ``Guard.looks``."""
        return True

    def judge(self, sights: Sequence[Sight]) -> Ruling:
        """See ``Guard.judge``."""
        bad = [index for index, sight in enumerate(sights) if self._is_beyond(sight)]
        worst = sorted(bad, key=lambda i: (_cosine(sights[i]), -sights[i].divergence, i))
        chosen = set(worst[: (len(sights) - 1) // 2] if len(sights) > 2 else ())
        return Ruling(tuple(index in chosen for index in range(len(sights))))

    def _is_beyond(self, sight: Sight) -> bool:
        limit = math.inf if self.most_divergence is None else self.most_divergence
        return _cosine(sight) < self.least_cosine or sight.divergence > limit


class Damp(Choice, frozen=True):
    """The outer step shrinks while the learner farthest off is beyond a bound.

    ``most_divergence / divergence`` of it is left, and at least ``least``.

    Attributes:
        most_divergence: Divergence up to which nothing shrinks.
        least: What is left of the step at least.
    """

    most_divergence: Divergence = 0.1
    least: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.1

    @property
    def looks(self) -> bool:
        """See ``Guard.looks``."""
        return True

    def judge(self, sights: Sequence[Sight]) -> Ruling:
        """See ``Guard.judge``."""
        farthest = max((sight.divergence for sight in sights), default=0.0)
        left = 1.0 if farthest <= self.most_divergence else self.most_divergence / farthest
        return Ruling((False,) * len(sights), max(self.least, left))


NO_GUARD: Final = NoGuard()

GUARDS: Final[Choices[Guard]] = Choices(
    "guard", {"off": NoGuard, "suppress": Suppress, "damp": Damp}
)


def _cosine(sight: Sight) -> float:
    """Return the cosine; who did not move disagrees with nobody."""
    return 1.0 if sight.cosine is None else sight.cosine
