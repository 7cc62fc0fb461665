"""The head hint: one read tells a reader where to look. It is never trusted."""

from collections.abc import Sequence

import msgspec

from gradientmail.records.canonical import digest_of
from gradientmail.records.fields import Count, Digest, Name, Positive
from gradientmail.records.manifest import PayloadRef


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fragment stands: one committed version of it.

    Attributes:
        digest: Of the version's record; of the manifest for version 0.
        params: The published parameters.
    """

    fragment: Count
    version: Count
    digest: Digest
    params: PayloadRef


class Voucher(msgspec.Struct, frozen=True):
    """Where every fragment stood at one commit, which holds the digest of ``beside``.

    Attributes:
        fragment: The commit's.
        version: The commit's.
        beside: Every other fragment, in order.
    """

    fragment: Count
    version: Positive
    beside: tuple[Standing, ...]


def digest_beside(beside: Sequence[Standing]) -> str:
    """Return the digest by which a commit vouches for where the other fragments stand."""
    return digest_of(msgspec.json.encode(beside, order="sorted"))


class Head(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="head/1", omit_defaults=True
):
    """What the closer last knew.

    Attributes:
        versions: Newest commit of every fragment.
        calling: Rounds whose grace window is open: post what you have.
        asked: By round, who is asked for it, where a run asks not for everyone.
        stopping: A stop was requested; learners finish their round and leave.
        done: The run has reached its last round.
        voucher: Where to join: one commit proves all of it.
    """

    run: Name
    term: Count
    closer: Name
    versions: tuple[Count, ...]
    calling: tuple[Count, ...] = ()
    asked: tuple[tuple[Count, tuple[Name, ...]], ...] = ()
    stopping: bool = False
    done: bool = False
    voucher: Voucher | None = None
