"""Moving averages and the timeout; values from shared numbers.md."""

import msgspec
import pytest

from gradientmail.records.estimates import Estimates


def test_the_average_moves_by_a_tenth() -> None:
    assert Estimates().observed(step_s=10.0).observed(step_s=20.0).step_s == pytest.approx(11.0)


def test_the_first_observation_is_taken_as_is() -> None:
    assert Estimates().observed(quorum_s=7.25) == Estimates(quorum_s=7.25)


def test_what_was_not_observed_stays() -> None:
    before = Estimates(step_s=1.0, sync_s=4.0)
    assert before.observed(quorum_s=2.0) == Estimates(step_s=1.0, quorum_s=2.0, sync_s=4.0)
    assert before.observed() == before


@pytest.mark.parametrize(
    ("estimates", "timeout_s"),
    [
        (Estimates(), 30),
        (Estimates(step_s=0.1, quorum_s=2, sync_s=1), 30),
        (Estimates(step_s=1, quorum_s=20, sync_s=4), 75),
        (Estimates(quorum_s=20), 60),
    ],
)
def test_timeout_is_thirty_polls_or_thrice_what_is_known(
    estimates: Estimates, timeout_s: float
) -> None:
    assert estimates.timeout(poll_s=1) == pytest.approx(timeout_s)


def test_estimates_survive_a_record() -> None:
    estimates = Estimates(step_s=0.5, sync_s=3.0)
    assert msgspec.json.decode(msgspec.json.encode(estimates), type=Estimates) == estimates
