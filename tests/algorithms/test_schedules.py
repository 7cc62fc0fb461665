"""Schedules of the outer step: values by hand, and the cosine that every machine rounds alike."""

import math
from typing import Any

import pytest

from gradientmail.algorithms.schedules import SCHEDULES, half_turn_cosine


@pytest.mark.parametrize(
    ("name", "settings", "factors"),
    [
        ("constant", {}, [1.0, 1.0, 1.0, 1.0]),
        ("constant", {"warmup_versions": 3}, [0.25, 0.5, 0.75, 1.0]),
        ("linear", {"versions": 2, "end": 0.5}, [1.0, 0.75, 0.5, 0.5]),
        ("linear", {"versions": 2, "warmup_versions": 1}, [0.5, 1.0, 0.5, 0.0]),
        ("cosine", {"versions": 2}, [1.0, 0.5, 0.0, 0.0]),
        ("inverse-sqrt", {}, [1.0, 1 / math.sqrt(2), 1 / math.sqrt(3), 0.5]),
        ("steps", {"every_versions": 2, "by": 0.1}, [1.0, 1.0, 0.1, 0.1]),
    ],
)
def test_a_schedule_is_a_function_of_the_version(
    name: str, settings: dict[str, Any], factors: list[float]
) -> None:
    schedule = SCHEDULES.make(name, settings)
    assert [schedule.factor(version) for version in (1, 2, 3, 4)] == pytest.approx(factors)


def test_the_cosine_is_the_cosine() -> None:
    parts = [i / 1000 for i in range(1001)]
    error = max(abs(half_turn_cosine(part) - math.cos(math.pi * part)) for part in parts)
    assert error < 1e-15
