"""When learners and closers look: predicted, bounded, and never all of them at once."""

import random
from dataclasses import replace

import pytest

from gradientmail.protocol.polling import (
    AGAIN_POLLS,
    CLOSER_POLLS,
    JITTER,
    LEAST_POLLS,
    QUIET_POLLS,
    Looks,
    Polling,
    late_wait_s,
)
from gradientmail.records.estimates import Estimates

POLL_S = 1.0
FIRST = Polling(poll_s=POLL_S, grace_s=None, cycle=4)
KNOWN = FIRST.answered(0.0, 6.0, 5.9)
SETTLED = KNOWN.answered(0.0, 6.0, 6.0)


def wait_s(one: Polling, now: float, *posted: float, eager: bool = False) -> float:
    """Return the wait after a look at the head."""
    return one.wait_s(now, head_at=now, chance=0.0, posted=posted, eager=eager)


def due(one: Polling, now: float, *posted: float, head_at: float = 0.0) -> set[int]:
    return set(one.falls_due(now, head_at=head_at, posted=dict(enumerate(posted)), eager=False))


# -- a learner ------------------------------------------------------------------------------------


def test_the_next_look_is_when_the_commit_is_due() -> None:
    assert wait_s(KNOWN, 100.0, 100.0) == 6.0
    assert wait_s(KNOWN, 101.0, 100.0, 97.0) == 2.0


def test_the_first_finds_halve_the_time_for_a_fleet_that_comes_together_takes_long() -> None:
    assert KNOWN.answered(0.0, 6.0, 1.0).takes_s == 3.0
    assert KNOWN.answered(0.0, 6.0, 1.0).answered(0.0, 3.0, 1.0).takes_s == 1.5


def test_a_commit_found_at_once_is_looked_for_a_little_sooner_and_then_sooner_still() -> None:
    once = SETTLED.answered(0.0, 6.0, 1.0)
    assert once.takes_s == pytest.approx(5.98)
    assert once.answered(0.0, 5.98, 1.0).takes_s == pytest.approx(5.95)


def test_a_commit_not_found_at_once_is_looked_for_as_late_as_it_was_found() -> None:
    missed = SETTLED.answered(0.0, 6.0, 1.0).answered(0.0, 7.0, 6.5)
    assert missed.takes_s == 7.0
    assert missed.answered(0.0, 7.0, 1.0).takes_s == pytest.approx(6.98)


def test_after_that_looks_come_as_late_again_as_the_commit_is_late_up_to_a_poll() -> None:
    now, looks = 6.0, []
    for _ in range(6):
        now += wait_s(KNOWN, now, 0.0)
        looks.append(now - 6.0)
    assert looks == [0.25, 0.5, 1.0, 2.0, 3.0, 4.0]


def test_before_the_first_commit_what_is_posted_is_due_at_once() -> None:
    assert wait_s(FIRST, 0.0, 0.0) == AGAIN_POLLS * POLL_S
    assert wait_s(FIRST, 20.0, 0.0) == POLL_S


def test_a_commit_that_is_due_is_read_itself_and_no_other() -> None:
    assert due(KNOWN, 6.0, 0.0, 0.5) == {0}
    assert due(KNOWN, 6.5, 0.0, 0.5) == {0, 1}


def test_what_is_late_by_a_poll_is_looked_for_in_the_head_and_all_else_with_it() -> None:
    assert due(KNOWN, 6.9, 0.0, 0.9) == {0, 1}
    assert due(KNOWN, 7.0, 0.0, 1.0) == set()


def test_where_nothing_is_due_a_look_is_at_the_head() -> None:
    assert due(KNOWN, 5.0, 0.0) == set()
    assert due(KNOWN, 5.0) == set()


def test_a_look_that_is_early_by_what_clocks_are_wrong_by_counts_as_on_time() -> None:
    early = 6.0 - 1e-6
    assert due(KNOWN, early, 0.0) == {0}
    assert KNOWN.answered(0.0, 6.25, early).takes_s == 6.25


def test_the_head_is_read_once_in_a_while_whatever_is_due() -> None:
    quiet_s = QUIET_POLLS * POLL_S
    assert due(KNOWN, 6.0, 0.0, head_at=6.0 - quiet_s) == set()
    assert due(KNOWN, 6.0, 0.0, head_at=6.5 - quiet_s) == {0}
    wait = KNOWN.wait_s(6.0, head_at=6.5 - quiet_s, chance=0.0, posted=[1.0], eager=False)
    assert wait == 0.5


def test_who_listens_for_calls_reads_the_head_as_often_as_it_must_to_hear_them() -> None:
    one = replace(KNOWN, grace_s=5.0).behind()
    assert due(one, 6.0, 0.0, head_at=3.5) == set()
    assert due(one, 6.0, 0.0, head_at=4.0) == {0}


def test_what_is_late_for_long_is_looked_for_ever_more_seldom() -> None:
    waits = [wait_s(KNOWN, now, 0.0) for now in (36.0, 44.0, 60.0, 1e6)]
    assert waits == sorted(waits)
    assert waits[0] == POLL_S
    assert waits[-1] == QUIET_POLLS * POLL_S


def test_what_is_late_for_long_does_not_delay_what_is_not() -> None:
    assert wait_s(KNOWN, 1000.0, 0.0, 999.0) == 5.0


def test_who_has_nothing_on_its_way_is_quiet() -> None:
    assert wait_s(KNOWN, 0.0) == QUIET_POLLS * POLL_S


def test_who_is_eager_looks_once_a_poll() -> None:
    assert wait_s(KNOWN, 100.0, 100.0, eager=True) == POLL_S


@pytest.mark.parametrize(("grace_s", "longest_s"), [(5.0, 2.5), (1.0, 1.0), (60.0, 8.0)])
def test_who_was_left_out_hears_the_next_calls_whenever_they_come(
    grace_s: float, longest_s: float
) -> None:
    one = Polling(poll_s=POLL_S, grace_s=grace_s, cycle=4).behind()
    for _ in range(2 * 4):
        assert wait_s(one, 0.0) == longest_s
        one = one.answered(0.0, 1.0, 0.9)
    assert wait_s(one, 0.0) == QUIET_POLLS * POLL_S


def test_where_nobody_is_called_nobody_listens() -> None:
    assert wait_s(FIRST.behind(), 0.0) == QUIET_POLLS * POLL_S


def test_chance_moves_a_look_by_less_than_it_says() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        now, chance = rng.uniform(0.0, 36.0), rng.random()
        exact = wait_s(KNOWN, now, 0.0)
        wait = KNOWN.wait_s(now, head_at=now, chance=chance, posted=[0.0], eager=False)
        assert exact <= wait <= exact * (1 + JITTER)
        assert wait >= LEAST_POLLS * POLL_S


@pytest.mark.parametrize("spread_s", [0.0, 0.3, 1.0])
def test_steady_commits_are_seen_soon_and_with_few_looks(spread_s: float) -> None:
    rng = random.Random(1)
    one, looks, late, gap_s = FIRST, 0, [], 0.0
    for index in range(400):
        posted_at = now = 20.0 * index
        committed_at = posted_at + max(0.1, rng.gauss(4.0, spread_s))
        while now < committed_at:
            gap_s = one.wait_s(
                now, head_at=now, chance=rng.random(), posted=[posted_at], eager=False
            )
            now, looks = now + gap_s, looks + 1
        late.append(now - committed_at)
        one = one.answered(posted_at, now, now - gap_s)
    assert looks <= 1.4 * 400
    assert sum(late) / len(late) <= 0.2 * POLL_S + 2 * spread_s
    assert max(late) <= 1.5 * POLL_S + 5 * spread_s


# -- a closer -------------------------------------------------------------------------------------


def looks(quorum_s: float, **changes: float) -> Looks:
    return Looks(
        poll_s=POLL_S,
        estimates=Estimates(quorum_s=quorum_s),
        **{"began": 0.0, "opened": 0.0, **changes},
    )


def test_a_closer_comes_half_way_nearer_with_each_look() -> None:
    waits = [looks(8.0).wait_s(now) for now in (0.0, 4.0, 6.0, 7.9, 8.0, 8.5, 20.0)]
    assert waits == [4.0, 2.0, 1.0, LEAST_POLLS, LEAST_POLLS, 0.5, POLL_S]


def test_a_closer_never_waits_long_while_someone_is_there() -> None:
    assert looks(1000.0).wait_s(0.0) == CLOSER_POLLS * POLL_S
    assert looks(1.0).wait_s(1e6) == CLOSER_POLLS * POLL_S


def test_once_mail_was_found_more_is_looked_for_soon() -> None:
    waits = [looks(1000.0, heard_at=10.0).wait_s(now) for now in (10.0, 10.5, 12.0)]
    assert waits == [LEAST_POLLS, 0.5, POLL_S]


def test_a_closer_with_nobody_there_looks_for_someone_once_a_poll_and_later_seldom() -> None:
    alone = Looks(poll_s=POLL_S, estimates=Estimates(), began=0.0)
    waits = [alone.wait_s(now) for now in (0.0, 0.5, 20.0, 1e6)]
    assert waits == [LEAST_POLLS, 0.5, POLL_S, CLOSER_POLLS * POLL_S]


def test_what_is_late_beyond_its_timeout_is_looked_for_more_seldom() -> None:
    assert late_wait_s(30.0, 30.0, POLL_S) == POLL_S
    assert late_wait_s(38.0, 30.0, POLL_S) == 2 * POLL_S
