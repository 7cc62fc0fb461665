"""Pace: steps and shares by measured speed, as pure functions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gradientmail.protocol.pace import (
    FASTEST_OVER_MEDIAN,
    HEARD_ROUNDS,
    Pace,
    Speed,
    batch_shares,
    local_steps,
)
from gradientmail.protocol.publishing import Publish, Publishing, Train
from gradientmail.protocol.schedule import RoundSchedule
from tests.records.golden import COMMIT

seconds = st.floats(1e-6, 1e3)


@pytest.mark.parametrize(("own_s", "steps"), [(0.1, 50), (0.2, 25), (0.45, 11), (99.0, 1)])
def test_a_learner_trains_as_long_as_the_fastest(own_s: float, steps: int) -> None:
    """arXiv 2401.09135: floor(v / max v * H)."""
    assert local_steps(50, own_step_s=own_s, fastest_step_s=0.1) == steps


def test_nobody_trains_more_than_the_schedule_says_and_all_at_least_a_step() -> None:
    assert local_steps(50, own_step_s=0.1, fastest_step_s=0.2) == 50
    assert local_steps(50, own_step_s=0.0, fastest_step_s=0.2) == 50
    assert local_steps(50, own_step_s=0.2, fastest_step_s=0.0) == 50
    assert local_steps(1, own_step_s=9.0, fastest_step_s=0.1) == 1


def test_a_slow_learner_posts_after_its_own_steps() -> None:
    publishing = Publishing(
        schedule=RoundSchedule(8, 2, 2, None), versions=(0, 0), anchored_at=(0, 0)
    )
    slow = publishing.paced(step_s=0.4, fastest_step_s=0.1)
    assert [publishing.decide(step) for step in (3, 4)] == [Train(), Publish(0)]
    assert slow.decide(1) == Publish(0)
    assert slow.published(0, 1).decide(2) == Publish(1)
    assert slow.gap(0) == 1


def test_speeds_are_read_from_commits_the_newest_first() -> None:
    (one,) = COMMIT.participants
    old = replace(COMMIT, participants=(replace(one, step_s=0.5), replace(one, learner="bob")))
    new = replace(COMMIT, participants=(replace(one, step_s=0.25, steps=2, tokens=100),))
    pace = Pace().heard([old, new])
    assert pace.speeds == {"alice": Speed(0.25, 0.005, COMMIT.version)}, "bob says nothing of his"
    assert pace.fastest_step_s == 0.25
    assert Pace().fastest_step_s == 0.0


def test_who_was_not_heard_for_many_rounds_neither_sets_the_pace_nor_holds_a_share() -> None:
    (one,) = COMMIT.participants
    fast, slow = replace(one, learner="fast", step_s=0.1), replace(one, learner="slow", step_s=1.0)
    pace = Pace().heard([replace(COMMIT, version=1, participants=(fast, slow))])
    for version in range(2, 1 + HEARD_ROUNDS):
        pace = pace.heard([replace(COMMIT, version=version, participants=(slow,))])
    assert pace.fastest_step_s == 0.1
    pace = pace.heard([replace(COMMIT, version=1 + HEARD_ROUNDS, participants=(slow,))])
    assert pace.fastest_step_s == 1.0
    assert pace.share("slow", 10) == 10


def test_where_a_round_holds_one_learner_all_that_take_turns_are_known() -> None:
    (one,) = COMMIT.participants
    pace = Pace()
    for version in range(1, 200):
        said = replace(one, learner=f"learner-{version % 30}", step_s=1.0)
        pace = pace.heard([replace(COMMIT, version=version, participants=(said,))])
        assert len(pace.speeds) == min(version, 30)


def test_no_single_claim_takes_the_whole_batch_or_slows_everybody() -> None:
    (one,) = COMMIT.participants
    claims = {"liar": 1e-320, "ann": 1.0, "bob": 1.0, "cat": 1.0}
    said = tuple(replace(one, learner=name, step_s=claim) for name, claim in claims.items())
    pace = Pace().heard([replace(COMMIT, participants=said)])
    assert (pace.fastest_step_s, pace.share("ann", 9)) == (1.0, 3)
    said = (replace(one, learner="liar", step_s=1e-8), *said[1:])
    pace = Pace().heard([replace(COMMIT, participants=said)])
    assert pace.fastest_step_s == pytest.approx(1.0 / FASTEST_OVER_MEDIAN)
    assert pace.share("ann", 1030) == 10


def test_shares_are_in_proportion_to_speed_and_add_up() -> None:
    assert batch_shares(10, {"fast": 0.1, "slow": 0.4}) == {"fast": 8, "slow": 2}
    assert batch_shares(7, {"a": 1.0, "b": 1.0, "c": 1.0}) == {"a": 3, "b": 2, "c": 2}
    assert batch_shares(3, {"a": 1e-6, "b": 1.0, "c": 1.0}) == {"a": 1, "b": 1, "c": 1}
    assert batch_shares(1, {"a": 1.0, "b": 1.0}) == {"a": 1, "b": 0}


@given(st.integers(1, 10_000), st.dictionaries(st.text(max_size=3), seconds, min_size=1))
def test_a_batch_is_dealt_whole_and_nobody_is_left_out(
    batch: int, token_s: dict[str, float]
) -> None:
    shares = batch_shares(batch, token_s)
    assert shares.keys() == token_s.keys()
    assert sum(shares.values()) == batch
    assert min(shares.values()) >= (batch >= len(token_s))


def test_one_that_is_not_known_yet_takes_what_the_median_takes() -> None:
    pace = Pace({name: Speed(1.0, s, 1) for name, s in {"a": 0.1, "b": 0.1, "c": 0.4}.items()})
    assert pace.share("new", 13) == 4
    assert Pace().share("new", 13) == 13
