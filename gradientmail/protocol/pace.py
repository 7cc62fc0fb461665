"""How much of the work a learner takes on, by its measured speed: pure functions of step times."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gradientmail.records.commit import RoundRecord

HEARD_ROUNDS = 16
"""Rounds after which a learner that was in none of them counts no more."""

HEARD_ROUNDS_EACH = 4
"""So many for each known learner, where that is more: a round may hold only one of them."""

SHORTEST_STEP_S = 1e-9
"""Seconds below which a claim is none."""

FASTEST_OVER_MEDIAN = 100.0
"""Times that the fastest is believed to be faster than the median: one liar slows no fleet."""


def typical_step_s(claims: Sequence[float], *, known: float | None) -> float | None:
    """Return the lower median of what a round's learners claim; None without any.

    At most so much above what is known: no single learner's claim may decide a timeout, and one
    that was paused amid a step, and is alone, says hours.

    >>> typical_step_s([1e11], known=2.0), typical_step_s([0.5, 1e11], known=None)
    (60.0, 0.5)
    """
    limit = max(CLAIM_GROWTH * known, USUAL_STEP_S) if known else LONGEST_STEP_S
    return min(statistics.median_low(claims), limit) if claims else None


def local_steps(steps: int, own_step_s: float, fastest_step_s: float) -> int:
    """Return how many of ``steps`` a learner takes so that all are done when the fastest is.

    Source: dynamic local updates (DyLU), Asynchronous Local-SGD (arXiv 2401.09135).

    >>> [local_steps(50, own_step_s=own, fastest_step_s=0.1) for own in (0.1, 0.2, 0.45, 99.0)]
    [50, 25, 11, 1]
    """
    if not 0.0 < fastest_step_s < own_step_s:
        return steps
    return max(1, math.floor(steps * (fastest_step_s / own_step_s)))


LONGEST_STEP_S = 3600.0
"""Seconds of a step that are believed while none are known."""

USUAL_STEP_S = 60.0
"""Seconds of a step that are always believed: where too few were known, a few rounds mend it."""

CLAIM_GROWTH = 10.0
"""Times the known seconds that are believed beyond: a round moves the average to 1.9 times."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What a learner said of itself.

    Attributes:
        step_s: Seconds of a step.
        token_s: Seconds of a token.
        version: Of the commit that named it.
    """

    step_s: float
    token_s: float
    version: int


@dataclass(frozen=True, slots=True)
class Pace:
    """What a learner knows of speeds, from commits alone: each learner's newest.

    Who was in none of the last rounds has left, and takes no share.
    """

    speeds: Mapping[str, Speed] = field(default_factory=dict)

    def heard(self, history: Iterable[RoundRecord]) -> "Pace":
        """Return what is known after more commits, in their order."""
        speeds = dict(self.speeds)
        for record in history:
            for one in record.participants:
                if one.step_s >= SHORTEST_STEP_S:
                    token_s = one.step_s * one.steps / one.tokens
                    speeds[one.learner] = Speed(one.step_s, token_s, record.version)
        newest = max((speed.version for speed in speeds.values()), default=0)
        kept = max(HEARD_ROUNDS, HEARD_ROUNDS_EACH * len(speeds))
        return Pace({name: one for name, one in speeds.items() if one.version > newest - kept})

    @property
    def fastest_step_s(self) -> float:
        """Seconds of a step of the fastest that can be believed; 0.0 while nobody's are known."""
        if not self.speeds:
            return 0.0
        return min(believed({name: speed.step_s for name, speed in self.speeds.items()}).values())

    def share(self, learner: str, batch: int) -> int:
        """Return what of a global batch a learner takes; one not named yet is like the median."""
        token_s = believed({name: speed.token_s for name, speed in self.speeds.items()})
        typical = statistics.median_low(token_s.values() or [1.0])
        return batch_shares(batch, {learner: typical, **token_s})[learner]


def believed(claims: Mapping[str, float]) -> dict[str, float]:
    """Return each learner's seconds, none below the lower median's by more than can be believed.

    >>> believed({"liar": 1e-8, "ann": 1.0, "bob": 2.0})
    {'liar': 0.01, 'ann': 1.0, 'bob': 2.0}
    """
    least = statistics.median_low(claims.values() or [0.0]) / FASTEST_OVER_MEDIAN
    return {name: max(claim, least) for name, claim in claims.items()}


def batch_shares(batch: int, token_s: Mapping[str, float]) -> dict[str, int]:
    """Return how much of a global batch each learner takes, so that their steps take equally long.

    In proportion to speed, in whole tokens (or samples) that add up to ``batch``; remainders go to
    the largest fractions, equal ones in the order of names. Nobody is left without one while there
    are enough: the largest share gives it.

    Args:
        batch: Tokens of a step of all learners together.
        token_s: Seconds each learner takes for one.

    >>> batch_shares(10, {"fast": 0.1, "slow": 0.4})
    {'fast': 8, 'slow': 2}
    """
    names = sorted(token_s)
    total = math.fsum(1.0 / token_s[name] for name in names)
    exact = {name: batch / token_s[name] / total for name in names}
    shares = {name: math.floor(part) for name, part in exact.items()}
    by_fraction = sorted(names, key=lambda name: (shares[name] - exact[name], name))
    for name in by_fraction[: batch - sum(shares.values())]:
        shares[name] += 1
    if batch >= len(names):
        for name in [name for name in names if not shares[name]]:
            shares[max(names, key=lambda one: shares[one])] -= 1
            shares[name] = 1
    return shares
