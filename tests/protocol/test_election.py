"""The lease: who may stand, when a holder gives up, and that a live one is left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.protocol.election import Beat, Holder, Look, Stand, StepDown, Wait, Watcher

LEASE_S = 20.0


def look(now: float, beat: str | None = "b1", *, term: int = 3, released: bool = False) -> Look:
    return Look(now=now, term=term, beat=beat, released=released)


def decisions(*looks: Look) -> list[Wait | Stand]:
    watcher, made = Watcher(lease_s=LEASE_S), []
    for seen in looks:
        watcher, decision = watcher.observe(seen)
        made.append(decision)
    return made


# -- a candidate ----------------------------------------------------------------------------


def test_the_first_term_is_free_to_take() -> None:
    assert decisions(look(0, None, term=0)) == [Stand(term=1)]


def test_a_released_term_is_followed_at_once() -> None:
    assert decisions(look(0, "last", term=7, released=True)) == [Stand(term=8)]


def test_first_sight_never_counts_as_expired() -> None:
    assert decisions(look(1e9)) == [Wait(until=1e9 + LEASE_S / 4)]


def test_a_beat_unchanged_for_the_lease_is_expired() -> None:
    *waits, last = decisions(*(look(now) for now in (0, 5, 10, 15, 20)))
    assert waits == [Wait(until=now) for now in (5, 10, 15, 20)]
    assert last == Stand(term=4)


def test_a_term_without_any_beat_expires_too() -> None:
    assert decisions(*(look(now, None) for now in (0, 7, 14, 21)))[-1] == Stand(term=4)


def test_three_looks_are_too_few_however_long_they_took() -> None:
    assert decisions(*(look(now) for now in (0, 10, 20)))[-1] == Wait(until=25)


@pytest.mark.parametrize("fresh", [look(15, "b2"), look(15, "b1", term=4)])
def test_another_beat_or_term_restarts_the_observation(fresh: Look) -> None:
    later = [look(now, fresh.beat, term=fresh.term) for now in (20, 25, 30, 34, 35)]
    made = decisions(look(0), look(5), look(10), fresh, *later)
    assert [type(decision) for decision in made] == [Wait] * 8 + [Stand]
    assert made[-1] == Stand(term=fresh.term + 1)


def test_a_stall_of_our_own_restarts_the_observation() -> None:
    made = decisions(*(look(now) for now in (0, 5, 10, 20.1, 25, 30, 35, 40, 40.1)))
    assert [type(decision) for decision in made] == [Wait] * 8 + [Stand]


def test_having_stood_in_vain_a_candidate_observes_anew() -> None:
    made = decisions(*(look(now) for now in (0, 5, 10, 15, 20, 21, 22)))
    assert [type(decision) for decision in made] == [Wait] * 4 + [Stand, Wait, Wait]


# -- a holder -------------------------------------------------------------------------------


def test_a_beat_is_due_five_times_a_lease() -> None:
    holder = Holder(term=3, lease_s=LEASE_S, renewed_at=100.0)
    assert holder.decide(now=103.9, newest_term=3) == Wait(until=104.0)
    assert holder.decide(now=104.0, newest_term=3) == Beat()
    assert holder.renewed(104.0).decide(now=105.0, newest_term=3) == Wait(until=108.0)


def test_a_holder_that_cannot_renew_steps_down_before_the_lease_is_over() -> None:
    holder = Holder(term=3, lease_s=LEASE_S, renewed_at=100.0)
    assert holder.decide(now=114.9, newest_term=3) == Beat()
    assert holder.decide(now=115.0, newest_term=3) == StepDown(
        reason="could not renew term 3 for 15.0 s"
    )


def test_a_holder_steps_down_for_a_newer_term() -> None:
    holder = Holder(term=3, lease_s=LEASE_S, renewed_at=100.0)
    assert holder.decide(now=100.0, newest_term=5) == StepDown(
        reason="term 5 was taken while we held 3"
    )


# -- together -------------------------------------------------------------------------------


@given(
    gaps=st.lists(st.floats(0.01, LEASE_S / 2), min_size=1, max_size=60),
    write_s=st.floats(0.0, LEASE_S / 5),
    offset_s=st.floats(-1e6, 1e6),
    first_look=st.floats(0.0, LEASE_S),
)
def test_a_holder_that_beats_on_time_is_never_deposed(
    gaps: list[float], write_s: float, offset_s: float, first_look: float
) -> None:
    """The two clocks differ by ``offset_s``; a beat shows ``write_s`` after its write began."""
    instants = [first_look]
    for gap in gaps:
        instants.append(instants[-1] + gap)
    shown, holder, now = [0.0], Holder(term=1, lease_s=LEASE_S, renewed_at=0.0), 0.0
    while now < instants[-1]:
        match holder.decide(now, newest_term=1):
            case Beat():
                shown.append(now + write_s)
                now, holder = now + write_s, holder.renewed(now)
            case Wait(until=until):
                now = until
            case other:
                pytest.fail(f"{other}")
    watcher = Watcher(lease_s=LEASE_S)
    for instant in instants:
        beat = str(sum(at <= instant for at in shown))
        watcher, decision = watcher.observe(look(instant + offset_s, beat, term=1))
        assert isinstance(decision, Wait)


@given(st.floats(-1e6, 1e6))
def test_a_candidate_that_comes_when_told_replaces_a_dead_holder_within_the_lease(
    start: float,
) -> None:
    watcher, decision = Watcher(lease_s=LEASE_S).observe(look(start))
    while isinstance(decision, Wait):
        now = decision.until
        watcher, decision = watcher.observe(look(now))
    assert now - start == pytest.approx(LEASE_S, abs=LEASE_S / 4)
