"""The round record: the one object whose creation closes a round."""

import msgspec

from gradientmail.records.estimates import Estimates
from gradientmail.records.fields import (
    Count,
    Digest,
    Key,
    Magnitude,
    Name,
    Nonce,
    Positive,
    Seconds,
    Text,
)
from gradientmail.records.manifest import PayloadRef


class Participant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One contribution that this version holds.

    Attributes:
        base: The version it was made against.
        weight: Its share before normalization, such as ``tokens**2 / steps``.
        norm: L2 norm of its pseudo-gradient over the fragment's parameters.
        clip: Factor it was scaled by before merging; 1.0 when its norm was not exceptional.
        key: Where its bytes were posted.
        digest: Of the whole object under ``key``.
        step_s: Mean seconds of one of its inner steps.
        divergence: Distance of its parameters from the new version, over the length of that.
        cosine: Of its pseudo-gradient and the merged one; None where either is zero.
        suppressed: The guard left it out: it weighs nothing here, and does not count again.
    """

    learner: Name
    incarnation: Nonce
    nonce: Nonce
    base: Count
    steps: Positive
    tokens: Positive
    weight: Magnitude
    norm: Magnitude
    clip: Magnitude
    key: Key
    digest: Digest
    samples: Count = 0
    step_s: Seconds = 0.0
    divergence: Magnitude | None = None
    cosine: float | None = None
    suppressed: bool = False


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """One object under the fragment's mail that was not counted, and why."""

    key: Key
    reason: Text


class RoundRecord(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="commit/1", omit_defaults=True
):
    """``fragment`` is at ``version``. Complete: nothing else is needed to go on from here.

    Attributes:
        parent: Digest of the record of ``version - 1`` (of the manifest for version 1).
        params: The published parameters.
        outer: The closer's own state: momentum, and the master where rounding separates it from
            ``params``. None before the first outer step.
        update: What takes ``version - 1`` to ``version`` exactly; None: fetch ``params``.
        empty: Nothing was accepted: same payloads as the parent.
        cosine: Mean pairwise cosine of the pseudo-gradients; None below two.
        norm: L2 norm of the merged pseudo-gradient.
        outer_steps: Outer steps this fragment has taken up to here: empty rounds take none.
        outer_scale: What schedule and guard multiplied the outer learning rate with.
        missing: Why contributions that were accepted are not in it; they count later.
        applied: Highest base used of each learner, over the whole chain.
        beside: Digest of where the other fragments stood, as the head tells it to joiners.
        closed_at: POSIX seconds on the closer's clock, for people.
    """

    run: Name
    fragment: Count
    version: Positive
    parent: Digest
    params: PayloadRef
    outer: PayloadRef | None = None
    update: PayloadRef | None = None
    empty: bool = False
    participants: tuple[Participant, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    cosine: float | None = None
    norm: Magnitude = 0.0
    outer_steps: Count = 0
    outer_scale: Magnitude = 1.0
    missing: Text | None = None
    applied: dict[Name, Count] = {}
    estimates: Estimates = Estimates()
    beside: Digest | None = None
    closer: Name
    term: Count
    nonce: Nonce
    closed_at: float = 0.0
