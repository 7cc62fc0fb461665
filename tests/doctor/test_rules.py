"""Each rule sees what is wrong, says what follows and what to do, and lets what is well pass."""

from typing import Any

import pytest
from msgspec.structs import replace

from gradientmail.config import RunSettings
from gradientmail.doctor.facts import Bytes, CloserFacts, FragmentFacts, LearnerFacts, RunFacts
from gradientmail.doctor.findings import Finding, Verdict
from gradientmail.doctor.rules import RULES, judge_run, overdue_s, worst
from gradientmail.records.commit import Rejection
from gradientmail.records.estimates import Estimates

SETTINGS = RunSettings(lease_s=10.0, presence_s=20.0, grace_s=3.0, poll_s=1.0, sync_every=50)
LIVE = CloserFacts(name="closer-1", term=3, released=False, changed=True)


def learner(name: str, *, changed: bool = True, left: bool = False, **fields: float):
    return LearnerFacts(
        **{"name": name, "changed": changed, "left": left, "ahead_s": 0.0, **fields}
    )


def fragment(**fields) -> FragmentFacts:
    return FragmentFacts(**{"fragment": 0, "version": 7, **fields})


def facts(**fields) -> RunFacts:
    well = {
        "run": "run-1",
        "settings": SETTINGS,
        "end": None,
        "observed_s": 11.0,
        "fragments": (fragment(),),
        "learners": (learner("ann"), learner("bob")),
        "closer": LIVE,
        "used": Bytes(objects=6, size_bytes=3_000_000),
    }
    return RunFacts(**{**well, **fields})


def finding(name: str, **fields) -> Finding:
    (found,) = (one for one in judge_run(facts(**fields)) if one.name == name)
    return found


def test_a_run_that_is_well_passes_every_rule() -> None:
    findings = judge_run(facts())
    assert len(findings) == len(RULES["closer"]) == len({one.name for one in findings})
    assert worst(findings) is Verdict.PASSED
    assert not [one for one in findings if one.advice or one.meaning]


@pytest.mark.parametrize(
    ("closer", "words"),
    [
        (None, "no closer ever held the lease"),
        (CloserFacts(name="c", term=2, released=True, changed=False), "c gave the lease back"),
        (
            CloserFacts(name="c", term=2, released=False, changed=False),
            "c (term 2) gave no sign of life for 11 s",
        ),
    ],
)
def test_a_run_without_a_closer_fails(closer: CloserFacts | None, words: str) -> None:
    found = finding("closer", closer=closer)
    assert found.verdict is Verdict.FAILED
    assert words in found.detail
    assert "gradientmail closer" in found.advice
    assert "no round is closed" in found.meaning


def test_a_closer_that_has_just_left_is_not_yet_missed() -> None:
    left = CloserFacts(name="c", term=2, released=True, changed=True)
    assert finding("closer", closer=left).verdict is Verdict.PASSED


@pytest.mark.parametrize("settings", [SETTINGS, replace(SETTINGS, exchange="gossip")])
def test_an_ended_run_needs_nobody_and_says_how_it_ended(settings: RunSettings) -> None:
    gone = (learner("ann", changed=False, left=True), learner("bob", changed=False))
    ended = facts(
        settings=settings,
        end="someone asked it to stop: enough",
        closer=None,
        learners=gone,
        fragments=(fragment(moved=False, open_s=1e6),),
    )
    findings = judge_run(ended)
    assert worst(findings) is Verdict.PASSED
    assert findings[0].detail == (
        "the run has ended: someone asked it to stop: enough; versions 7; not yet left: bob"
    )


def test_a_silent_learner_is_named() -> None:
    found = finding("learners", learners=(learner("ann"), learner("bob", changed=False)))
    assert found.verdict is Verdict.WARNED
    assert "1 live: ann" in found.detail
    assert "no sign of life for 11 s: bob" in found.detail
    assert "presence_s = 20 s" in found.meaning


def test_one_that_left_is_not_missed() -> None:
    left = learner("bob", changed=False, left=True)
    assert finding("learners", learners=(learner("ann"), left)).verdict is Verdict.PASSED


def test_nobody_at_all_fails() -> None:
    silent = finding("learners", learners=(learner("ann", changed=False),))
    assert silent.verdict is Verdict.FAILED
    assert "silent: ann" in silent.detail
    assert finding("learners", learners=()).detail == "none is there"


def test_fewer_than_a_quorum_wait_for_every_timeout() -> None:
    few = finding("learners", settings=RunSettings(quorum=3))
    assert few.verdict is Verdict.WARNED
    assert "quorum = 3" in few.detail


def test_a_round_is_overdue_after_a_takeover_and_a_silence() -> None:
    one = fragment(estimates=Estimates(step_s=0.1))
    assert overdue_s(facts(), one) == 15.0 + 22.5 + 3.0 + 2 * 50 * 0.1 + 30.0


@pytest.mark.parametrize(
    ("open_s", "moved", "verdict"),
    [(70.0, False, Verdict.PASSED), (71.0, False, Verdict.FAILED), (71.0, True, Verdict.PASSED)],
)
def test_only_a_round_that_is_overdue_and_does_not_move_is_stuck(
    *, open_s: float, moved: bool, verdict: Verdict
) -> None:
    assert finding("rounds", fragments=(fragment(open_s=open_s, moved=moved),)).verdict is verdict


def test_who_a_stuck_round_waits_for_is_named() -> None:
    stuck = fragment(fragment=3, open_s=500.0, moved=False, heard=frozenset({"ann"}))
    detail = finding("rounds", fragments=(fragment(), stuck)).detail
    assert detail == "fragment 3 is at version 7 for 500 s, waiting for bob"
    heard = fragment(open_s=500.0, moved=False, heard=frozenset({"ann", "bob"}))
    assert "every live learner was heard" in finding("rounds", fragments=(heard,)).detail


# -- without a closer -----------------------------------------------------------------------------

GOSSIP = replace(SETTINGS, exchange="gossip", topology="ring", keep_versions=2)
POSTED = {"ann": 7, "bob": 7}


def among_neighbours(**fields) -> dict[str, Any]:
    """Return what differs where learners mix among themselves; ``fields`` are the fragment's."""
    return {"settings": GOSSIP, "closer": None, "fragments": (fragment(posts=POSTED, **fields),)}


def test_learners_that_mix_among_themselves_need_no_closer() -> None:
    findings = judge_run(facts(**among_neighbours()))
    assert worst(findings) is Verdict.PASSED
    assert not [one for one in findings if one.advice or one.meaning]
    assert {one.name for one in findings} >= {"learners", "posts", "payloads"}
    (said,) = (one.detail for one in findings if one.name == "posts")
    assert said == (
        "no closer is needed: learners mix over topology 'ring'; newest posts are for versions 7"
    )


def test_who_has_not_posted_yet_is_told_and_no_fault() -> None:
    found = finding(
        "posts", **among_neighbours() | {"fragments": (fragment(posts={"ann": 7, "bob": 6}),)}
    )
    assert found.verdict is Verdict.PASSED
    assert found.detail.endswith("versions 7, not yet by bob (1 behind)")


def test_who_was_left_behind_is_named() -> None:
    found = finding(
        "posts", **among_neighbours() | {"fragments": (fragment(posts={"ann": 7, "bob": 3}),)}
    )
    assert found.verdict is Verdict.WARNED
    assert "the others no longer wait for bob" in found.detail


@pytest.mark.parametrize(
    ("step_s", "moved", "verdict"),
    [
        (0.1, False, Verdict.WARNED),
        (0.1, True, Verdict.PASSED),
        (0.2, False, Verdict.PASSED),
        (0.0, False, Verdict.PASSED),
    ],
)
def test_posts_that_should_have_come_and_did_not_are_missed(
    *, step_s: float, moved: bool, verdict: Verdict
) -> None:
    here = {"learners": (learner("ann", step_s=step_s), learner("bob"))}
    found = finding("posts", **among_neighbours(moved=moved), **here)
    assert found.verdict is verdict
    assert ("none came in 11 s" in found.detail) == (verdict is Verdict.WARNED)


@pytest.mark.parametrize(
    ("grace_s", "meaning"),
    [
        (None, "no round is mixed before so many have shown"),
        (3.0, "no round is mixed before so many have shown or waited grace_s = 3 s"),
    ],
)
def test_nothing_is_mixed_before_a_quorum_has_shown(grace_s: float | None, meaning: str) -> None:
    few = replace(GOSSIP, quorum=3, grace_s=grace_s)
    found = finding("learners", **among_neighbours() | {"settings": few})
    assert (found.verdict, found.meaning) == (Verdict.WARNED, meaning)
    gone = (learner("ann"), learner("bob"), learner("cat", changed=False, left=True))
    shown = among_neighbours() | {"settings": few, "learners": gone}
    assert finding("learners", **shown).verdict is Verdict.PASSED


def test_nobody_there_fails_without_a_closer_too() -> None:
    assert finding("learners", **among_neighbours(), learners=()).verdict is Verdict.FAILED


def test_those_who_exchange_with_nobody_cannot_be_seen_and_need_no_help() -> None:
    alone = replace(SETTINGS, exchange="nobody")
    findings = judge_run(facts(settings=alone, closer=None, learners=()))
    assert worst(findings) is Verdict.PASSED
    assert "cannot be seen; no closer is needed" in findings[0].detail


def test_the_first_payload_is_vital_until_someone_has_posted() -> None:
    missing = {"missing": ((0, "fragments/x"),)}
    joined = finding("payloads", **among_neighbours(**missing))
    assert joined.verdict is Verdict.WARNED
    assert "takes what another posted" in joined.meaning
    nobody = among_neighbours() | {"fragments": (fragment(version=0, **missing),)}
    assert finding("payloads", **nobody).meaning.endswith("no learner joins")


# -- objects, rejections and clocks ---------------------------------------------------------------


def test_the_newest_versions_payload_is_vital_and_an_older_ones_is_not() -> None:
    newest = finding("payloads", fragments=(fragment(missing=((7, "fragments/x"),)),))
    assert newest.verdict is Verdict.FAILED
    assert "fragments/x (version 7)" in newest.detail
    assert "no closer goes on" in newest.meaning
    older = finding("payloads", fragments=(fragment(missing=((6, "fragments/x"),)),))
    assert older.verdict is Verdict.WARNED
    many = finding("payloads", fragments=(fragment(missing=((6, "x"),) * 9),))
    assert many.detail.endswith("and 6 more")


def test_orphans_are_weighed_and_what_becomes_of_them_is_told() -> None:
    swept = finding("orphans", sweepable=Bytes(2, 5_000_000), unused=Bytes(1, 1_000_000))
    assert swept.verdict is Verdict.PASSED
    assert "2 objects, 5.0 MB that the next sweep deletes" in swept.detail
    assert "1 objects, 1.0 MB that no record names" in swept.detail
    foreign = finding("orphans", foreign=Bytes(1, 10))
    assert foreign.verdict is Verdict.WARNED
    assert "the sweep never touches them" in foreign.meaning


def test_a_retained_run_that_is_mostly_orphans_warns() -> None:
    kept = RunSettings(retain=True)
    much = finding("orphans", settings=kept, unused=Bytes(9, 4_000_000))
    assert much.verdict is Verdict.WARNED
    assert "nothing is ever deleted" in much.meaning
    little = finding("orphans", settings=kept, unused=Bytes(9, 2_000_000))
    assert little.verdict is Verdict.PASSED


def test_why_contributions_were_rejected_is_told() -> None:
    refused = fragment(rejected=(Rejection(key="mail/x", reason="norm is no number"),))
    found = finding("rejected", fragments=(refused,))
    assert found.verdict is Verdict.WARNED
    assert "mail/x: norm is no number" in found.detail


@pytest.mark.parametrize(
    ("ahead_s", "changed", "words"),
    [
        (59.0, True, None),
        (-61.0, True, "ann is 61 s behind"),
        (1e6, True, "ann is 1000000 s ahead"),
        (-1e6, False, None),
    ],
)
def test_a_clock_is_judged_by_who_lives(
    *, ahead_s: float, changed: bool, words: str | None
) -> None:
    found = finding("clocks", learners=(learner("ann", changed=changed, ahead_s=ahead_s),))
    assert (found.verdict is Verdict.WARNED) == (words is not None)
    assert words is None or words in found.detail
    assert ("S3 refuses" in found.meaning) == (changed and abs(ahead_s) > 900)


def test_the_worst_verdict_counts() -> None:
    passed, warned, failed = (Finding("x", verdict, "") for verdict in Verdict)
    assert worst([]) is Verdict.PASSED
    assert worst([passed, warned]) is Verdict.WARNED
    assert worst([warned, failed, passed]) is Verdict.FAILED
