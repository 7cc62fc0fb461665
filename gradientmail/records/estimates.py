"""How long things take: moving averages that travel from commit to commit."""

import msgspec

from gradientmail.records.fields import Seconds

DECAY = 0.1


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential moving averages, in seconds; None until the first observation.

    Attributes:
        step_s: One inner step.
        quorum_s: From the opening of a round to its quorum.
        sync_s: From there to its commit.
    """

    step_s: Seconds | None = None
    quorum_s: Seconds | None = None
    sync_s: Seconds | None = None

    def observed(
        self,
        *,
        step_s: float | None = None,
        quorum_s: float | None = None,
        sync_s: float | None = None,
    ) -> "Estimates":
        """Fold observations in; the first one is taken as is.

        >>> Estimates(step_s=10.0).observed(step_s=20.0).step_s
        11.0
        """
        return Estimates(
            step_s=fold(self.step_s, step_s),
            quorum_s=fold(self.quorum_s, quorum_s),
            sync_s=fold(self.sync_s, sync_s),
        )

    def timeout(self, poll_s: float) -> float:
        """Seconds after which something is overdue, for a poll interval of ``poll_s``."""
        known = sum(
            value for value in (self.step_s, self.quorum_s, self.sync_s) if value is not None
        )
        return max(30.0 * poll_s, 3.0 * known)


def fold(average: float | None, observation: float | None) -> float | None:
    """Return the moving average after an observation; the first one is taken as is.

    >>> fold(10.0, 20.0)
    11.0
    """
    if observation is None or average is None:
        return average if observation is None else observation
    return (1.0 - DECAY) * average + DECAY * observation
