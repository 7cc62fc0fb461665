"""The schedule is given and exact; values from shared numbers.md."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.errors import SettingsError
from gradientmail.protocol.schedule import RoundSchedule

GIVEN_STEPS = [
    (100, 4, [25, 50, 75, 100, 125]),
    (10, 3, [3, 6, 10, 13, 16, 20]),
    (7, 3, [2, 4, 7, 9, 11, 14]),
    (5, 5, [1, 2, 3, 4, 5, 6]),
]


@st.composite
def schedules(draw: st.DrawFn) -> RoundSchedule:
    sync_every = draw(st.integers(1, 10_000))
    return RoundSchedule(sync_every, fragments=draw(st.integers(1, min(sync_every, 300))))


@pytest.mark.parametrize(("sync_every", "fragments", "steps"), GIVEN_STEPS)
def test_rounds_are_due_at_the_given_steps(
    sync_every: int, fragments: int, steps: list[int]
) -> None:
    schedule = RoundSchedule(sync_every, fragments)
    assert [schedule.step_of(r) for r in range(len(steps))] == steps


def test_gaps_are_the_given_ones() -> None:
    schedule = RoundSchedule(sync_every=10, fragments=3)
    assert [schedule.gap(r) for r in range(6)] == [3, 3, 4, 3, 3, 4]


def test_fragments_take_turns_and_versions_count_the_cycles() -> None:
    schedule = RoundSchedule(sync_every=7, fragments=3)
    assert [schedule.fragment_of(r) for r in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [schedule.version_after(r) for r in range(7)] == [1, 1, 1, 2, 2, 2, 3]


@given(schedules())
def test_the_first_gap_is_the_first_step(schedule: RoundSchedule) -> None:
    assert schedule.gap(0) == schedule.step_of(0)


@given(schedules(), st.integers(0, 50))
def test_gaps_of_a_cycle_sum_to_sync_every(schedule: RoundSchedule, cycle: int) -> None:
    rounds = range(cycle * schedule.fragments, (cycle + 1) * schedule.fragments)
    assert sum(schedule.gap(r) for r in rounds) == schedule.sync_every


@given(schedules(), st.integers(0, 1000))
def test_every_round_has_steps_of_its_own_and_gaps_differ_by_one_at_most(
    schedule: RoundSchedule, round_index: int
) -> None:
    shortest = schedule.sync_every // schedule.fragments
    assert schedule.gap(round_index) in {shortest, shortest + 1}
    assert schedule.gap(round_index) >= 1


@given(schedules(), st.integers(0, 1000))
def test_round_of_is_the_inverse(schedule: RoundSchedule, round_index: int) -> None:
    fragment = schedule.fragment_of(round_index)
    version = schedule.version_after(round_index)
    assert schedule.round_of(fragment, version) == round_index


def test_more_fragments_than_steps_is_an_error_that_says_what_to_change() -> None:
    with pytest.raises(SettingsError, match=r"fragments=8 .* sync_every=5.*at most 5.*at least 8"):
        RoundSchedule(sync_every=5, fragments=8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fragments": 0}, "fragments=0: at least 1"),
        ({"fragments": 2, "in_flight": 0}, "in_flight=0: set 1 to 2"),
        ({"fragments": 2, "in_flight": 3}, "never has two rounds of one fragment"),
        ({"fragments": 2, "overlap_steps": -1}, "overlap_steps=-1: set 0"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, int], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        RoundSchedule(sync_every=10, **settings)


def test_all_fragments_may_be_in_flight_and_no_overlap_is_allowed() -> None:
    assert RoundSchedule(10, 4, in_flight=4, overlap_steps=0).in_flight == 4
