"""Who closes now: a term is created once, its beat is overwritten by the holder."""

import msgspec

from gradientmail.records.fields import Count, Name, Nonce, Positive


class Term(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="term/1"):
    """Closer ``closer`` took the lease's term ``term``."""

    run: Name
    term: Positive
    closer: Name
    nonce: Nonce


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="beat/1"):
    """The holder's sign of life: ``count`` rises; ``released`` is its last word."""

    term: Positive
    closer: Name
    count: Count
    released: bool = False
