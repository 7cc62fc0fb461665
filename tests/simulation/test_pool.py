import pytest

from gradientmail.simulation.pool import mapped


@pytest.mark.parametrize("jobs", [1, 2])
def test_verdicts_come_in_the_order_of_their_cases(jobs, quiet):
    assert list(mapped(abs, range(-9, 1), jobs)) == list(range(9, -1, -1))
