"""A figure is a ratio of what took turns, and says whether it reaches its target."""

import time

import pytest
from benchmarks.frame import (
    ChildError,
    Figure,
    Samples,
    at_least,
    at_most,
    compared,
    in_child,
    interleaved,
    peak_memory,
    ratio,
)


def test_what_is_compared_takes_turns_after_a_round_that_does_not_count() -> None:
    calls: list[str] = []
    samples = interleaved(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, times=2
    )
    assert calls == ["a", "b"] * 3
    assert len(samples["a"].wall) == len(samples["b"].cpu) == 2


def test_a_ratio_is_the_median_of_ratios_and_not_the_ratio_of_medians() -> None:
    above, below = Samples(wall=[2.0, 30.0, 4.0]), Samples(wall=[1.0, 10.0, 4.0])
    found = ratio(above, below)
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)


def test_a_figure_says_whether_it_reaches_its_target() -> None:
    samples = Samples(wall=[1.0], cpu=[1.0])
    figure = compared("encode", ratio(samples, samples), "x", samples, target=at_least(0.6))
    assert figure.met
    assert not Figure(what="wait", value=1.2, unit="x", target=at_most(1.1)).met
    assert Figure(what="bare", value=1.2, unit="x").met is None


def test_a_child_returns_what_its_function_returns() -> None:
    assert in_child("os.path:join", "a", "b") == "a/b"


def test_a_child_that_fails_says_why() -> None:
    with pytest.raises(ChildError, match="No such file"):
        in_child("os:listdir", "/there/is/no/such/folder")


def test_cpu_seconds_are_not_wall_seconds() -> None:
    samples = interleaved({"sleep": lambda: time.sleep(0.05)}, times=1, warm=0)
    assert samples["sleep"].cpu_s < samples["sleep"].wall_s


def test_the_peak_is_seen_even_when_the_memory_is_given_back() -> None:
    with peak_memory() as memory:
        taken = bytearray(64 << 20)
        del taken
    assert memory.above_start_bytes > 60 << 20
