"""The contribution's record: it travels in the header of the object that carries the data."""

from typing import Annotated

import msgspec

from gradientmail.records.fields import Count, Digest, Magnitude, Name, Nonce, Positive, Seconds


class ContributionRecord(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="contribution/1",
    omit_defaults=True,
):
    """One learner's pseudo-gradient of one fragment against version ``base``.

    Attributes:
        incarnation: Drawn when the learner's process started: tells twins and restarts apart.
        anchor: Digest of the record that committed ``base`` (of the manifest for version 0).
        steps: Inner steps since the anchor, at least 1.
        tokens: Tokens in them, at least 1.
        samples: Examples in them; 0 where the learner's loop counts none.
        step_s: Mean seconds of one of them.
        final: The learner's last word on this fragment before it leaves.
        precision: Codec of the data.
        norms: L2 norm of each tensor of the fragment as a reader decodes it, in layout order;
            None: the tensor did not change and is absent, so neither it nor its momentum moves
            for us.
        digest: Of the data bytes behind the header.
        nonce: Unique to this object; the commit names contributions by it.
    """

    run: Name
    learner: Name
    incarnation: Nonce
    fragment: Count
    base: Count
    anchor: Digest
    steps: Positive
    tokens: Positive
    samples: Count = 0
    step_s: Seconds
    final: bool
    precision: Annotated[str, msgspec.Meta(max_length=16)]
    norms: tuple[Magnitude | None, ...]
    digest: Digest
    nonce: Nonce
