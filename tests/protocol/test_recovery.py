"""What became of a contribution, by the commits since."""

import msgspec
import pytest

from gradientmail.protocol.recovery import (
    Echo,
    Fate,
    Posted,
    echo,
    fate,
    is_applied,
    last_repeatable,
    reason_rejected,
)
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.manifest import PayloadRef

NONCE = "0123456789abcdef0123456789abcdef"
DIGEST = f"xxh3_128:{NONCE}"
MINE = Posted(key="mail/0000/0000000004/alice/mine", base=4)
TWIN = "mail/0000/0000000004/alice/twin"


def participant(base: int) -> Participant:
    return Participant(
        learner="alice",
        incarnation=NONCE,
        nonce=NONCE,
        base=base,
        steps=1,
        tokens=1,
        weight=1.0,
        norm=1.0,
        clip=1.0,
        key=MINE.key,
        digest=DIGEST,
    )


def commit(
    version: int,
    *,
    uses: int | None = None,
    applied: int | None = None,
    rejected: str | None = None,
) -> RoundRecord:
    """Return the commit of ``version``: a base of Alice's it uses, the highest one ever used."""
    applied = uses if applied is None else applied
    return RoundRecord(
        participants=() if uses is None else (participant(uses),),
        run="r1",
        fragment=0,
        version=version,
        parent=DIGEST,
        params=PayloadRef(key="fragments/x", size_bytes=1, digest=DIGEST),
        rejected=() if rejected is None else (Rejection(key=rejected, reason="too loud"),),
        applied={"bob": 99} if applied is None else {"alice": applied, "bob": 99},
        closer="c-1",
        term=1,
        nonce=NONCE,
    )


@pytest.mark.parametrize(
    ("history", "max_staleness", "expected"),
    [
        pytest.param([commit(5, uses=4)], 0, Fate.APPLIED, id="used by its round"),
        pytest.param(
            [commit(5, uses=4), commit(6, applied=4)], 0, Fate.APPLIED, id="and rounds went on"
        ),
        pytest.param(
            [commit(5), commit(6, uses=5)], 1, Fate.DROPPED, id="a later base was used first"
        ),
        pytest.param([commit(5, rejected=MINE.key)], 0, Fate.REJECTED, id="rejected"),
        pytest.param([commit(5, rejected=MINE.key)], 2, Fate.REJECTED, id="rejected in time"),
        pytest.param(
            [commit(5, applied=3, rejected=TWIN)], 0, Fate.DROPPED, id="a twin's rejected"
        ),
        pytest.param([commit(5, uses=4, rejected=TWIN)], 0, Fate.APPLIED, id="one of twins used"),
        pytest.param(
            [commit(5, uses=4, rejected=MINE.key)], 0, Fate.APPLIED, id="a twin's used, ours not"
        ),
        pytest.param([commit(5)], 0, Fate.DROPPED, id="closed without it"),
        pytest.param([commit(5, applied=3)], 0, Fate.DROPPED, id="only an older base was used"),
        pytest.param([commit(4)], 0, Fate.PENDING, id="its round is open"),
        pytest.param([commit(5)], 1, Fate.PENDING, id="late, and may still count"),
        pytest.param([commit(5), commit(6)], 1, Fate.DROPPED, id="too late"),
        pytest.param([commit(7)], 3, Fate.PENDING, id="three behind of three"),
        pytest.param([commit(8)], 3, Fate.DROPPED, id="four behind of three"),
    ],
)
def test_the_commits_since_decide_one_fate(
    history: list[RoundRecord], max_staleness: int, expected: Fate
) -> None:
    assert fate("alice", MINE, history, max_staleness=max_staleness) is expected


@pytest.mark.parametrize(
    ("newest", "restored", "max_staleness", "expected"),
    [
        pytest.param(commit(5), False, 9, Echo.NONE, id="nobody posted it"),
        pytest.param(commit(5), True, 0, Echo.NONE, id="too late to count"),
        pytest.param(commit(5), True, 1, Echo.REPEAT, id="it may still count"),
        pytest.param(commit(6), True, 1, Echo.FORGET, id="posted against a later base, maybe"),
        pytest.param(commit(6), True, 0, Echo.NONE, id="nothing stale counts"),
        pytest.param(commit(6), False, 9, Echo.NONE, id="far on, and nobody else posted it"),
        pytest.param(commit(5, uses=4), False, 0, Echo.REPEAT, id="this base was used"),
        pytest.param(commit(6, uses=5), True, 9, Echo.FORGET, id="a later base was used"),
    ],
)
def test_what_an_earlier_self_may_have_posted_counts_once(
    newest: RoundRecord, *, restored: bool, max_staleness: int, expected: Echo
) -> None:
    found = echo("alice", 4, newest, restored=restored, max_staleness=max_staleness)
    assert found is expected


def test_a_neighbour_can_repeat_as_many_rounds_as_posts_are_kept() -> None:
    assert last_repeatable(4, keep_versions=3) == 7  # of which 5, 6 and 7 are kept


def test_another_learners_work_is_not_ours() -> None:
    assert not is_applied("alice", 0, commit(5))
    assert is_applied("bob", 99, commit(5))
    assert not is_applied("bob", 100, commit(5))


def test_every_base_up_to_the_highest_used_counts_as_used() -> None:
    newest = commit(9, applied=6)
    assert [is_applied("alice", base, newest) for base in (5, 6, 7)] == [True, True, False]


def test_the_reason_of_a_rejection_reaches_its_learner() -> None:
    assert reason_rejected(MINE.key, commit(5, rejected=MINE.key)) == "too loud"
    assert reason_rejected(TWIN, commit(5, rejected=MINE.key)) is None
    silent = msgspec.structs.replace(commit(5), rejected=())
    assert reason_rejected(MINE.key, silent) is None
