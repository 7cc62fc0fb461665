"""Who is live: by change alone, on one clock, and never dead because the closer slept."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gradientmail.protocol.liveness import Liveness

PRESENCE_S = 60.0


def seen(*looks: tuple[float, dict[str, str]]) -> Liveness:
    liveness = Liveness(presence_s=PRESENCE_S)
    for now, tags in looks:
        liveness = liveness.observed(now, tags)
    return liveness


def test_first_sight_is_live_from_that_moment() -> None:
    assert seen((1e6, {"a": "t1"})).live(1e6) == {"a"}


def test_nobody_is_live_before_the_first_look() -> None:
    assert seen().live(5.0) == frozenset()


def test_a_tag_that_stays_is_silence() -> None:
    liveness = seen(*((now, {"a": "t1", "b": f"t{now}"}) for now in (0, 20, 40, 60)))
    assert liveness.live(60) == {"a", "b"}
    assert liveness.live(60.1) == {"b"}


def test_a_learner_that_returns_is_live_again() -> None:
    silent = seen(*((now, {"a": "t1"}) for now in (0, 25, 50, 75)))
    assert silent.live(75) == frozenset()
    assert silent.observed(80, {"a": "t2"}).live(80) == {"a"}


def test_a_learner_that_a_stale_listing_lacks_is_kept() -> None:
    assert seen((0, {"a": "t1"}), (20, {})).live(20) == {"a"}


def test_a_learner_that_left_is_not_live_until_its_tag_changes() -> None:
    gone = seen((0, {"a": "last", "b": "t1"})).left("a")
    assert gone.live(0) == {"b"}
    assert gone.observed(10, {"a": "last", "b": "t1"}).live(10) == {"b"}
    assert gone.observed(10, {"a": "new", "b": "t1"}).live(10) == {"a", "b"}


def test_those_who_left_are_noted_in_one_pass() -> None:
    gone = seen((0, {"a": "t1", "b": "t1", "c": "t1"})).left("a", "c")
    assert gone.live(0) == {"b"}
    assert gone.left() == gone


def test_a_stalled_closer_declares_nobody_dead() -> None:
    before = seen((0, {"a": "t1", "b": "t1"}))
    assert before.live(1000) == {"a", "b"}
    woken = before.observed(1000, {"a": "t1", "b": "t1"})
    assert woken.live(1000) == {"a", "b"}
    assert seen((0, {"a": "t1"}), (31, {"a": "t1"}), (61, {"a": "t1"})).live(61) == {"a"}


def test_a_stall_wakes_neither_the_dead_nor_the_departed() -> None:
    looks = [(now, {"dead": "t1", "gone": f"t{now}"}) for now in (0, 25, 50, 75)]
    before = seen(*looks).left("gone")
    woken = before.observed(1000, {"dead": "t1", "gone": "t75"})
    assert woken.live(1000) == frozenset()


def test_what_was_live_before_a_stall_still_has_to_show_itself() -> None:
    looks = [(now, {"a": "t1"}) for now in (0, 1000, 1025, 1050, 1061)]
    assert seen(*looks).live(1061) == frozenset()


def test_whoever_turns_out_to_be_no_learner_is_forgotten() -> None:
    liveness = seen((0, {"a": "t1", "gone": "t1", "eve": "t1"})).left("gone")
    liveness = liveness.restricted_to({"a", "gone", "bob"})
    assert liveness.live(1) == {"a"}
    assert liveness.observed(2, {"a": "t1", "gone": "t1"}).live(2) == {"a"}


@given(
    gaps=st.lists(st.floats(0.0, 300.0), max_size=40),
    beats_s=st.floats(0.1, PRESENCE_S / 3),
    origin=st.floats(-1e6, 1e6),
)
def test_a_learner_that_shows_itself_is_live_however_the_closer_looks(
    gaps: list[float], beats_s: float, origin: float
) -> None:
    liveness, now = Liveness(presence_s=PRESENCE_S), 0.0
    for gap in gaps:
        now += gap
        liveness = liveness.observed(origin + now, {"a": str(now // beats_s)})
        assert liveness.live(origin + now) == {"a"}
        assert liveness.live(origin + now + 300.0) == {"a"}


def test_it_says_until_when_nobody_falls_silent_unless_it_is_stalled_already() -> None:
    liveness = seen((0, {"a": "t1"}))
    assert liveness.steady_until(1) == PRESENCE_S / 2, "then it stalls, and nobody falls silent"
    assert liveness.steady_until(PRESENCE_S) == math.inf


@given(
    looks=st.lists(
        st.tuples(
            st.integers(1, 50), st.dictionaries(st.sampled_from("abc"), st.sampled_from("tu"))
        ),
        min_size=1,
    ),
    later=st.integers(0, 100),
    on=st.integers(0, 100),
)
def test_who_is_live_stays_so_until_the_instant_it_says(
    looks: list[tuple[int, dict[str, str]]], later: int, on: int
) -> None:
    now, liveness = 0, seen()
    for after, tags in looks:
        now += after
        liveness = liveness.observed(now, tags)
    now += later
    if now + on <= liveness.steady_until(now):
        assert liveness.live(now + on) == liveness.live(now)
