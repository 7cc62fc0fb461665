"""The head hint: one read tells a reader where to look. It is never trusted."""

import msgspec

from gradientmail.records.fields import Count, Name


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
    """

    run: Name
    term: Count
    closer: Name
    versions: tuple[Count, ...]
    calling: tuple[Count, ...] = ()
    asked: tuple[tuple[Count, tuple[Name, ...]], ...] = ()
    stopping: bool = False
    done: bool = False
