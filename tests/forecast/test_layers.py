import pytest

from gradientmail.forecast.layers import Training, least_index
from gradientmail.protocol.schedule import RoundSchedule


def two_layers(schedule: RoundSchedule | None) -> Training:
    """A second a pass: forward 1 2, backward 2 2 1, then the reductions."""
    return Training(layers=2, step_s=6.0, bits=20.0, schedule=schedule)


def test_data_parallel_waits_for_the_first_layer_s_reduction() -> None:
    # Layer 2 is reduced from 3 s on and layer 1 from 5 s on, 10 bits each at 5 bits a second: the
    # second step begins at 7 s and the last one ends at 12 s.
    assert two_layers(None).utilisation(5.0, steps=2) == pytest.approx(10 / 12)


def test_a_wide_line_costs_nothing() -> None:
    assert two_layers(None).utilisation(1e12, steps=5) == pytest.approx(1.0)


def test_reducing_seldom_costs_less_and_overlapped_nothing() -> None:
    slow = 5.0
    at_each, seldom, overlapped = (
        two_layers(schedule).utilisation(slow, steps=41)
        for schedule in (
            None,
            RoundSchedule(10, 1, overlap_steps=0),
            RoundSchedule(10, 1, overlap_steps=1),
        )
    )
    assert at_each < seldom < overlapped == pytest.approx(1.0)


def test_a_fragment_is_every_p_th_layer() -> None:
    training = Training(
        layers=6, step_s=1.0, bits=1.0, schedule=RoundSchedule(4, 2, overlap_steps=0)
    )
    reduced = training._reduced()
    assert [list(next(iter(reduced))) for _ in range(4)] == [[], [0, 2, 4], [], [1, 3, 5]]


def test_the_least_bandwidth_is_the_first_that_is_enough() -> None:
    training, grid = two_layers(None), [1.0, 5.0, 10.0, 1e6]
    shares = [training.utilisation(bits_s, steps=3) for bits_s in grid]
    assert shares == sorted(shares)
    assert least_index(training, shares[1], grid, steps=3) == 1
    assert least_index(training, 1.1, grid, steps=3) == len(grid)
