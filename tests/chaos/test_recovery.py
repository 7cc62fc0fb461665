"""Recovery is measured from the last fault to the next commit, and held against T."""

import pytest

from gradientmail.chaos.recovery import Recoveries, Spread, promised_s
from gradientmail.config import RunSettings
from gradientmail.records.estimates import Estimates


def test_recovery_is_from_the_last_fault_to_the_next_commit() -> None:
    seen = Recoveries()
    for at in (1.0, 2.0):
        seen.commit(at)
    seen.fault(3.0)
    seen.fault(5.0)
    seen.commit(7.5)
    seen.commit(8.0)
    assert (seen.faults, seen.seconds, seen.gaps) == (2, [2.5], [1.0, 0.5])


def test_a_fault_before_the_first_commit_counts() -> None:
    seen = Recoveries()
    seen.fault(1.0)
    seen.commit(4.0)
    assert (seen.seconds, seen.gaps) == ([3.0], [])


def test_t_is_the_sum_of_all_waits() -> None:
    settings = RunSettings(lease_s=10.0, presence_s=40.0, poll_s=1.0, grace_s=3.0)
    calm = promised_s(settings, Estimates(), start_s=5.0, round_s=7.0)
    assert calm == 5.0 + 15.0 + 45.0 + 30.0 + 3.0 + 2.0 + 7.0
    slow = promised_s(settings, Estimates(step_s=20.0), start_s=5.0, round_s=7.0)
    assert slow - calm == 30.0
    patient = RunSettings(lease_s=10.0, presence_s=40.0, poll_s=1.0, grace_s=None)
    assert promised_s(patient, Estimates(), start_s=5.0, round_s=7.0) == calm - 3.0


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert Spread.of([]) is None
    assert Spread.of([4.0]) == Spread(4.0, 4.0, 4.0)
    thousand = Spread.of([float(number) for number in range(1000, 0, -1)])
    assert thousand == Spread(pytest.approx(500.5), 990.0, 1000.0)
