"""What became of a learner's work once a later version of the fragment is known.

    posted, and its base is in the commit's ``applied`` -->                    APPLIED
    posted, named in the commit's ``rejected`` -->                             REJECTED
    posted, and its base is too old for the next version -->                   DROPPED
    posted, and its base still counts for the next version -->                 PENDING
    trained on a base that ``applied`` holds, posted by an earlier self -->    APPLIED

A learner's steps count at most once per base, whichever of its incarnations posted them. DROPPED
steps are carried into the next contribution; REJECTED ones are not, they would be rejected again.
"""

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


def fate(learner: str, posted: Posted, newest: RoundRecord, *, max_staleness: int) -> Fate:
    """Return what ``newest``, the newest commit known, says of ``posted``."""
    if is_applied(learner, posted.base, newest):
        return Fate.APPLIED
    if reason_rejected(posted.key, newest) is not None:
        return Fate.REJECTED
    return Fate.DROPPED if newest.version - posted.base > max_staleness else Fate.PENDING


def is_applied(learner: str, base: int, newest: RoundRecord) -> bool:
    """Whether some contribution of ``learner`` against ``base`` or later was used."""
    return newest.applied.get(learner, -1) >= base


def reason_rejected(key: str, record: RoundRecord) -> str | None:
    """Return why the object under ``key`` was rejected; None when ``record`` does not name it."""
    reasons = (rejection.reason for rejection in record.rejected if rejection.key == key)
    return next(reasons, None)
