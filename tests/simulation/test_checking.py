import os
import subprocess
import sys
from collections import Counter

import pytest

from gradientmail.simulation.checking import judged, judged_seed, shrunk
from gradientmail.simulation.families import any_world
from gradientmail.simulation.planted import planted
from gradientmail.simulation.sightings import EXPECTED

BATCH = range(40)
RARE = {
    *("a norm was clipped", "an empty round", "fault outage", "fault 409"),
    *("two closers raced, and the loser went on", "versions followed an outage of ten minutes"),
    *("hostile mail that is good counted", "contributions in I2 counted"),
    *("contributions in SIGN counted", "contributions in SPARSE counted"),
    *("a robust rule merged contributions", "a rule had too few contributions"),
}
"""Fewer than one world in eight; ``scripts/simulate --seeds 5000`` asks for these too."""

REGRESSIONS = {
    ("restarts", 1): "what an earlier self posted and its state did not know of counted twice",
    ("restarts", 11): "the same, posted against the base before",
    ("any", 3): "a manifest that came truncated ended a learner, a flipped commit another one",
    ("any", 8): "a payload of which a bit was flipped on its way was taken for a damaged run",
    ("any", 19): "commits that came damaged ended a learner, then a closer",
    ("any", 3173): "a commit of which the run's name was flipped on its way ended a closer",
    ("any", 247): "a head that an older one was put over asked nobody for the next round",
    ("any", 2186): "a commit with a flipped payload's name let a sweep delete what it named",
    ("any", 3585): "steps of a restored state counted again beside a stale post that held them",
    ("any", 509): "a flipped bit of SPARSE is a good contribution where 64 numbers were sent",
    ("any", 3115): "a stray object under mail/ was no contribution, and was not to be swept",
}
"""What a seed once found. The smallest worlds of it are in ``test_world``: a seed names its world
only for as long as worlds are drawn as they are."""

DIGESTS = """
import logging, sys, torch
from gradientmail.simulation.checking import judged_seed
torch.set_num_threads(1)
logging.disable(logging.CRITICAL)
print([judged_seed(seed).digest for seed in (3, 4, 5)])
"""


def test_a_batch_of_worlds_keeps_every_promise_and_sees_everything(quiet):
    seen = Counter()
    for seed in BATCH:
        verdict = judged_seed(seed)
        again = f"scripts/simulate --seed {seed}"
        assert not verdict.wrong, again
        seen.update(set(verdict.seen))
    assert not [what for what in EXPECTED if not seen[what] and what not in RARE]


@pytest.mark.parametrize(("family", "seed"), REGRESSIONS, ids=str)
def test_what_was_found_once_is_not_found_again(family, seed, quiet):
    assert not judged_seed(seed, family).wrong, REGRESSIONS[family, seed]


def test_a_seed_gives_the_same_log_in_every_process(quiet):
    """Also where strings hash differently, which would show an order taken from a set."""
    logs = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": str(salt)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for salt in (1, 2)
    }
    logs.add(f"{[judged_seed(seed).digest for seed in (3, 4, 5)]}\n")
    assert len(logs) == 1


def test_a_failing_world_shrinks_to_what_it_takes(quiet):
    with planted("no-applied"):
        seed = next(seed for seed in range(10) if judged_seed(seed).wrong)
        small = shrunk(any_world(seed))
        assert judged(small).wrong
    assert not small.incidents
    assert not small.weather.rates
    assert not judged(small).wrong
