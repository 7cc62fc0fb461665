"""A loss is judged by what undisturbed runs differ by themselves."""

import random
from statistics import fmean, stdev

from gradientmail.chaos.noise import Noise


def test_the_limit_is_that_of_a_prediction_interval() -> None:
    noise = Noise((0.50, 0.52, 0.54))
    assert (noise.mean, round(noise.deviation, 6)) == (0.52, 0.02)
    assert round(noise.limit, 4) == round(0.52 + 9.925 * 0.02 * (4 / 3) ** 0.5, 4)


def test_better_is_no_fault() -> None:
    noise = Noise((0.50, 0.52, 0.54))
    assert noise.covers(0.1)
    assert noise.covers(noise.limit)
    assert not noise.covers(noise.limit + 1e-6)


def test_a_run_like_the_twins_is_worse_than_the_limit_in_one_of_two_hundred() -> None:
    rng = random.Random(5)
    worse = 0
    for _ in range(4000):
        *twins, one = (rng.gauss(0.5, 0.1) for _ in range(7))
        noise = Noise(twins)
        assert (noise.mean, noise.deviation) == (fmean(twins), stdev(twins))
        worse += not noise.covers(one)
    assert 5 <= worse <= 40
