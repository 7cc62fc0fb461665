"""Chance that can be repeated, and a clock that only goes forward."""

import asyncio
import random
import re
import time

import pytest

from gradientmail.clock import SystemClock, fresh_nonce, system_random, thread_cpu_s


def test_a_nonce_is_32_hexadecimal_digits_and_follows_its_generator() -> None:
    first, again = (fresh_nonce(random.Random(1)) for _ in range(2))
    assert first == again
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert re.fullmatch("[0-9a-f]{32}", fresh_nonce(Zero()))


class Zero(random.Random):
    """Draws the smallest number there is."""

    def getrandbits(self, k: int, /) -> int:
        return 0


def test_two_processes_draw_different_nonces() -> None:
    assert fresh_nonce(system_random()) != fresh_nonce(system_random())


def test_the_real_clock_never_goes_back() -> None:
    clock = SystemClock()
    before = clock.now()
    asyncio.run(clock.sleep(0.0))
    assert clock.now() >= before
    assert clock.wall() > 1.7e9


@pytest.mark.parametrize(
    ("text", "offset_s", "rate"),
    [("1000000", 1e6, 1.0), ("-3600x4", -3600.0, 4.0), ("0x0.25", 0, 0.25)],
)
def test_a_clock_can_be_made_wrong_for_a_test(
    text: str, offset_s: float, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADIENTMAIL_CLOCK", text)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    assert SystemClock().now() == offset_s + rate * 100.0
    right, wrong = time.time(), SystemClock().wall()
    assert wrong - right == pytest.approx(offset_s, abs=0.25 * abs(offset_s) + 5000.0)


@pytest.mark.parametrize("text", ["", "fast", "1x0", "1x", "nan", "1e9", "x4"])
def test_how_to_make_a_clock_wrong_is_told(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIENTMAIL_CLOCK", text)
    with pytest.raises(ValueError, match="write seconds, as in 3600"):
        SystemClock()


def test_cpu_seconds_are_those_of_the_thread_that_asks() -> None:
    began = thread_cpu_s()
    time.sleep(0.05)
    assert thread_cpu_s() - began < 0.05
    while thread_cpu_s() - began < 0.01:
        pass
