"""What became of a learner's work once a later version of the fragment is known.

    posted, and a commit has a participant of ours with its base -->           APPLIED
    posted, named in a commit's ``rejected`` -->                               REJECTED
    posted, and its base is too old, or a later one of ours was used -->       DROPPED
    posted, and its base still counts for the next version -->                 PENDING

A learner's steps count at most once per base, whichever of its incarnations posted them. DROPPED
steps are carried into the next contribution; REJECTED ones are not, they would be rejected again.

A learner restored from its state may have posted more than the state knows of. What it has trained
on a base, and not posted, when a newer version arrives (``Echo``):

    ``applied`` holds a later base --> FORGET: that self went further, and what is left was in it
    mail against a base between this one and the newest may still count --> FORGET: that self may
        have gone further, and what is left may be in what it posted there
    ``applied`` holds this base, or mail against it may still count --> REPEAT: post it against
        this base all the same, and of the two at most one counts (what that self had carried into
        mail against the newest can count beside it: docs/promises.md, "What is not promised")
    otherwise --> NONE: nothing posted against this base counts; it goes on with the alignment
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


class Echo(Enum):
    """What to do with unposted steps that an earlier self may have posted."""

    NONE = "none"
    REPEAT = "repeat"
    FORGET = "forget"


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
    late = _is_late(posted.base, newest, max_staleness)
    return Fate.DROPPED if overtaken or late else Fate.PENDING


def echo(
    learner: str, base: int, newest: RoundRecord, *, restored: bool, max_staleness: int
) -> Echo:
    """Return what to do with steps trained on ``base`` and not posted, now that ``newest`` is.

    ``restored``: the steps before were trained by an earlier self.
    """
    used = newest.applied.get(learner, -1)
    stale_counts = restored and max_staleness > 0
    if used > base or (stale_counts and newest.version > base + 1):
        return Echo.FORGET
    return Echo.REPEAT if used == base or stale_counts else Echo.NONE


def _is_late(base: int, newest: RoundRecord, max_staleness: int) -> bool:
    """Whether no version after ``newest`` takes mail against ``base``."""
    return newest.version - base > max_staleness


def _uses(learner: str, base: int, record: RoundRecord) -> bool:
    return any(one.learner == learner and one.base == base for one in record.participants)


def is_applied(learner: str, base: int, newest: RoundRecord) -> bool:
    """Whether some contribution of ``learner`` against ``base`` or later was used."""
    return newest.applied.get(learner, -1) >= base


def reason_rejected(key: str, record: RoundRecord) -> str | None:
    """Return why the object under ``key`` was rejected; None when ``record`` does not name it."""
    reasons = (rejection.reason for rejection in record.rejected if rejection.key == key)
    return next(reasons, None)


def last_repeatable(version: int, *, keep_versions: int) -> int:
    """Return up to which version neighbours may be, and still have what comes after ``version``.

    A learner that was killed goes through these rounds again, from what was posted then.
    """
    return version + posts_kept(keep_versions)


def posts_kept(keep_versions: int) -> int:
    """Return how many of its posts a learner leaves for its neighbours.

    At least two: who follows a neighbour goes on one version behind it, and must find its post.
    """
    return max(keep_versions, 2)
