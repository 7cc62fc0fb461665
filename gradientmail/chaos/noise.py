"""Whether a loss is what undisturbed runs come to, or worse."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

LEAST_TWINS = 3

# Student's t, two-sided 99 %: of a hundred sound runs at most one falls outside, half of them
# by being better. By degrees of freedom; the last one serves for all above.
_T99 = (63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055)


@dataclass(frozen=True, slots=True)
class Noise:
    """Final losses of undisturbed twins, which differ by their seeds.

    Example:
        >>> Noise((0.50, 0.52, 0.54)).limit
        0.749...
    """

    losses: Sequence[float]

    @property
    def mean(self) -> float:
        """Return the mean of the twins."""
        return fmean(self.losses)

    @property
    def deviation(self) -> float:
        """Return their standard deviation."""
        return stdev(self.losses)

    @property
    def limit(self) -> float:
        """Return the upper end of the 99 % prediction interval for one more run of their kind.

        A disturbed run may be better than all twins: while nobody closes, learners train on.
        """
        count = len(self.losses)
        t = _T99[min(count - 1, len(_T99)) - 1]
        return self.mean + t * self.deviation * math.sqrt(1 + 1 / count)

    def covers(self, loss: float) -> bool:
        """Whether ``loss`` is no worse than undisturbed runs are."""
        return loss <= self.limit
