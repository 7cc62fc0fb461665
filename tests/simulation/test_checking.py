import os
import subprocess
import sys
from collections import Counter

from gradientmail.simulation.checking import judged, judged_seed, shrunk
from gradientmail.simulation.families import any_world
from gradientmail.simulation.planted import planted
from gradientmail.simulation.sightings import EXPECTED

BATCH = range(30)
RARE = {
    "a norm was clipped": "one world in twelve",
    "an empty round": "one world in eight",
}

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
