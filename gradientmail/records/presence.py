"""A learner's presence: what it says of itself, overwritten as it goes."""

import msgspec

from gradientmail.records.fields import Count, Magnitude, Name, Nonce, Seconds, Text


class Presence(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="presence/1",
    omit_defaults=True,
):
    """Counters of one learner's process. A claim for people and for liveness, never for safety.

    Attributes:
        count: Rises with every beat.
        versions: The version of each fragment it is aligned with: it may still read from there on.
        loss: The last loss its loop reported.
        waited_s: Seconds its training thread waited for commits.
        divergence: In a run without a closer: distance of what it posted last from what mixing
            made of that, over the length of the latter.
        tags: What it says of itself, for rounds that ask for some only.
        left: Its last word: it does not come back under this incarnation.
    """

    run: Name
    learner: Name
    incarnation: Nonce
    count: Count
    versions: tuple[Count, ...]
    steps: Count = 0
    tokens: Count = 0
    samples: Count = 0
    step_s: Seconds = 0.0
    loss: float | None = None
    posted: Count = 0
    applied: Count = 0
    dropped: Count = 0
    rejected: Text | None = None
    bytes_up: Count = 0
    bytes_down: Count = 0
    requests: Count = 0
    waited_s: Seconds = 0.0
    divergence: Magnitude | None = None
    device: Text = "cpu"
    seen_at: float = 0.0
    tags: tuple[Name, ...] = ()
    left: bool = False
