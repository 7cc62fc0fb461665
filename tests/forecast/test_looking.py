"""What a learner's looks cost: one at commits that are due is not one at the head."""

import random
from types import SimpleNamespace
from typing import Any, cast

from gradientmail.algorithm import algorithm_of
from gradientmail.forecast.looking import Looking
from tests.forecast.fleets import diloco


def looking_at(now: float) -> Looking:
    settings = diloco(poll_s=1.0)
    ground: Any = SimpleNamespace(
        settings=settings,
        algorithm=algorithm_of(settings),
        rng=random.Random(0),
        latency_s=0.0,
        now=now,
    )
    return Looking(cast("Any", ground))


def test_a_look_that_finds_two_commits_is_one_that_asked_no_head() -> None:
    learner = looking_at(0.0)
    learner.begin()
    for fragment in (0, 1):
        learner.posted(fragment)
    ground = cast("Any", learner._ground)
    ground.now = cast("float", learner.next_look())
    before = learner.looks
    learner.looked()
    for fragment in (0, 1):
        learner.seen(fragment)
    assert before - learner.looks == 1
