"""When a round closes: the decision as values; ``gradientmail.closer`` does the I/O.

The machine reads no clock and waits for nothing. It is told what one look at the store saw, and at
which instant, and answers with what to do next::

    collecting    -- quorum accepted ------------------------------>  grace window
    grace window  -- window over, or every live learner heard ----->  Close
    collecting    -- every live learner heard, none accepted ------>  Close, empty
    collecting    -- every live learner heard, below quorum, late ->  Close with what there is
    any           -- someone committed the version ---------------->  Adopt

Source: Decoupled DiLoCo (arXiv 2604.21428): minimum quorum, grace window.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What one look at a round saw, at instant ``now``.

    Attributes:
        now: Seconds on the closer's clock; never less than in the look before.
        committed: Whether the round's version exists already.
        accepted: Learners with an accepted contribution.
        rejected: Learners with a rejected contribution; they count as heard.
        live: Learners that are live: those that a round waits for. One that was never seen is
            not among them, so look at presences before the first look at a round.
    """

    now: float
    committed: bool
    accepted: AbstractSet[str]
    rejected: AbstractSet[str]
    live: AbstractSet[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """Look again by ``until`` (seconds, the closer's clock); None: at the next poll.

    Attributes:
        calling: The grace window is running out: learners should post what they have.
    """

    until: float | None = None
    calling: bool = False


@dataclass(frozen=True, slots=True)
class Close:
    """Close the round now, with exactly these learners' contributions; none: an empty round."""

    learners: frozenset[str]


@dataclass(frozen=True, slots=True)
class Adopt:
    """Another closer has closed the round: go on from its commit."""


Decision = Wait | Close | Adopt


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """One round being collected.

    Attributes:
        quorum: Accepted contributions that open the grace window, at least 1.
        grace_s: Seconds to keep collecting after that, while slow learners are called; None:
            until every live learner is heard, and nobody is called.
        timeout_s: Seconds below quorum, with every live learner heard, before closing anyway.
        quorum_at: Instant the quorum was met; None before.
        heard_at: Instant at which every live learner had been heard; None before.
    """

    quorum: int
    grace_s: float | None
    timeout_s: float
    quorum_at: float | None = None
    heard_at: float | None = None

    def observe(self, look: Look) -> tuple["Closing", Decision]:
        """Fold one look and decide; equal arguments give equal results."""
        if look.committed:
            return self, Adopt()
        accepted = frozenset(look.accepted)
        someone = bool(look.live or accepted)
        everyone = someone and look.live <= accepted | look.rejected
        following = replace(
            self,
            quorum_at=_since(self.quorum_at, len(accepted) >= self.quorum, look.now),
            heard_at=_since(self.heard_at, everyone, look.now),
        )
        return following, _decide(following, accepted, look.now)


def _decide(closing: Closing, accepted: frozenset[str], now: float) -> Decision:
    if closing.quorum_at is not None:
        if closing.heard_at is not None:
            return Close(accepted)
        if closing.grace_s is None:
            return Wait()
        deadline = closing.quorum_at + closing.grace_s
        return Close(accepted) if now >= deadline else Wait(until=deadline, calling=True)
    if closing.heard_at is None:
        return Wait()
    if not accepted:
        return Close(accepted)
    deadline = closing.heard_at + closing.timeout_s
    return Close(accepted) if now >= deadline else Wait(until=deadline)


def _since(instant: float | None, holds: bool, now: float) -> float | None:  # noqa: FBT001
    """Return when a condition began to hold; None while it does not."""
    return None if not holds else now if instant is None else instant
