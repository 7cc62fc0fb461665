"""What became of a learner's work once a later version of the fragment is known.

    posted, and a commit has a participant of ours with its base -->           APPLIED
    posted, named in a commit's ``rejected`` -->                               REJECTED
    posted, and its base is too old, or a later one of ours was used -->       DROPPED
    posted, and its base still counts for the next version -->                 PENDING
    trained on a base that ``applied`` holds, posted by an earlier self -->    APPLIED

A learner's steps count at most once per base, whichever of its incarnations posted them. DROPPED
steps are carried into the next contribution; REJECTED ones are not, they would be rejected again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gradientmail.records.commit import RoundRecord


class Fate(Enum):
    """What became of the steps trained on one base."""

    APPLIED = "applied"
    REJECTED = "rejected"
    DROPPED = "dropped"
    PENDING = "pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """One contribution of ours: its key, and the base it was made against."""

    key: str
    base: int


def fate(
    learner: str, posted: Posted, history: Sequence[RoundRecord], *, max_staleness: int
) -> Fate:
    """Return what became of ``posted`` in ``history``.

    ``history`` holds the commits in which it may be named, in order; the last is the newest known.
    """
    newest = history[-1]
    if any(_uses(learner, posted.base, record) for record in history):
        return Fate.APPLIED
    if any(reason_rejected(posted.key, record) is not None for record in history):
        return Fate.REJECTED
    overtaken = is_applied(learner, posted.base, newest)
    late = newest.version - posted.base > max_staleness
    return Fate.DROPPED if overtaken or late else Fate.PENDING


def _uses(learner: str, base: int, record: RoundRecord) -> bool:
    return any(one.learner == learner and one.base == base for one in record.participants)


def is_applied(learner: str, base: int, newest: RoundRecord) -> bool:
    """Whether some contribution of ``learner`` against ``base`` or later was used."""
    return newest.applied.get(learner, -1) >= base


def reason_rejected(key: str, record: RoundRecord) -> str | None:
    """Return why the object under ``key`` was rejected; None when ``record`` does not name it."""
    reasons = (rejection.reason for rejection in record.rejected if rejection.key == key)
    return next(reasons, None)
