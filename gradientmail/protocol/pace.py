"""How much of the work a learner takes on, by its measured speed: pure functions of step times."""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gradientmail.records.commit import RoundRecord


def local_steps(steps: int, own_step_s: float, fastest_step_s: float) -> int:
    """Return how many of ``steps`` a learner takes so that all are done when the fastest is.

    Source: dynamic local updates (DyLU), Asynchronous Local-SGD (arXiv 2401.09135).

    >>> [local_steps(50, own_step_s=own, fastest_step_s=0.1) for own in (0.1, 0.2, 0.45, 99.0)]
    [50, 25, 11, 1]
    """
    if not 0.0 < fastest_step_s < own_step_s:
        return steps
    return max(1, math.floor(steps * (fastest_step_s / own_step_s)))


@dataclass(frozen=True, slots=True)
class Pace:
    """What a learner knows of speeds, from commits alone.

    Attributes:
        step_s: Seconds of a step, the newest of each learner that a commit named.
        token_s: Seconds of a token, likewise.
    """

    step_s: Mapping[str, float] = field(default_factory=dict)
    token_s: Mapping[str, float] = field(default_factory=dict)

    def heard(self, history: Iterable[RoundRecord]) -> "Pace":
        """Return what is known after more commits, in their order."""
        used = [one for record in history for one in record.participants if one.step_s > 0.0]
        return Pace(
            {**self.step_s, **{one.learner: one.step_s for one in used}},
            {**self.token_s, **{one.learner: one.step_s * one.steps / one.tokens for one in used}},
        )

    @property
    def fastest_step_s(self) -> float:
        """Seconds of a step of the fastest; 0.0 while nobody's are known."""
        return min(self.step_s.values(), default=0.0)

    def share(self, learner: str, batch: int) -> int:
        """Return what of a global batch a learner takes; one not named yet is like the median."""
        typical = statistics.median_low(self.token_s.values() or [1.0])
        return batch_shares(batch, {learner: typical, **self.token_s})[learner]


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
