"""Chance that can be repeated, and a clock that only goes forward."""

import asyncio
import random
import re

from gradientmail.clock import SystemClock, fresh_nonce, system_random


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
