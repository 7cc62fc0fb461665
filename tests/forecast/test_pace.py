import random

import pytest

from gradientmail.forecast.pace import Pace


def steady(at: float, chance: float) -> float:
    return 2.0


def test_looks_that_find_nothing_are_counted_as_if_each_had_happened() -> None:
    pace = Pace(random.Random(0), takes_s=0.5)
    assert pace.next_look(1001.0, due=float("inf"), wait=steady) == pytest.approx(1002.0)
    assert pace.looks == pytest.approx(401)  # one every 2.5 s, the first after 2 s
    assert pace.gap_s == pytest.approx(2.0)


def test_a_look_that_was_noted_sees_all_that_comes_before_it() -> None:
    pace = Pace(random.Random(0))
    assert pace.next_look(3.0, due=0.0, wait=steady) == 4.0
    assert pace.next_look(3.5, due=0.0, wait=steady) is None
    pace.looked(4.0)
    assert pace.next_look(4.5, due=0.0, wait=steady) == 6.0


def test_the_pace_quickens_when_something_is_due() -> None:
    def wait(at: float, chance: float) -> float:
        return min(8.0, 100.0 - at) if at < 100.0 else 1.0

    pace = Pace(random.Random(0))
    assert pace.next_look(103.5, due=100.0, wait=wait) == pytest.approx(104.0)
    assert pace.looks == pytest.approx(12 + 1 + 4)


def test_what_is_late_for_long_is_counted_by_its_rate() -> None:
    pace = Pace(random.Random(0))
    pace.catch_up(10_000.0, due=0.0, wait=steady)
    assert pace.looks == pytest.approx(5_000, abs=1)
    assert pace.looked_at == pytest.approx(10_000, abs=2.0)
