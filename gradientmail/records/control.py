"""What people ask of a run, and the boundary a sweep writes before it deletes."""

import msgspec

from gradientmail.records.fields import Count, Name, Nonce, Text


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="stop/1"):
    """End the run after the rounds in flight. It can be neither withdrawn nor repeated."""

    run: Name
    reason: Text
    nonce: Nonce


class Boundary(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="boundary/1"):
    """Payloads and mail of ``fragment`` at or under ``version`` may be gone from now on."""

    run: Name
    fragment: Count
    version: Count
    nonce: Nonce
