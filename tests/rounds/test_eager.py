"""Eager updates: own newest steps in place of delayed ones, and every step is sent once."""

import asyncio

import pytest
import torch

from gradientmail.algorithm import algorithm_of
from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.learner.outbox import Outbox
from tests.learner.lone import Lone, flat, make_desk, used

H = 4


def eager() -> Lone:
    lone = Lone(sync_every=H, alignment="eager", mixing=0.25, overlap_steps=None)
    lone.join(0.0)
    return lone


def sent(lone: Lone, since: int = 0) -> float:
    """Return the newest pseudo-gradient and what was owed with it."""
    owed = sum(float(vector[0]) for _, vector in lone.wire.owed[since:])
    return float(lone.wire.posted[-1].delta[0]) + owed


def test_the_newest_steps_stand_in_for_the_delayed_ones_and_are_sent_whole() -> None:
    lone = eager()
    lone.steps(H + 2, 1.0)
    lone.commit(1, 10.0, **used(0))
    lone.step(1.0)
    assert lone.values == [10.0 + 0.25 * (3.0 - 4.0)]
    lone.step(1.0)
    assert sent(lone) == -4.0, "the four steps since the snapshot"
    lone.steps(2, 1.0)
    lone.commit(2, 20.0, **used(1))
    lone.training.settle()
    assert lone.values == [20.0 + 0.25 * (2.0 - 4.0)]
    lone.steps(2, 1.0)
    assert sent(lone, since=1) == -4.0


def test_what_was_not_posted_yet_is_sent_once_however_often_others_commit() -> None:
    lone = eager()
    lone.steps(2, 1.0)
    lone.commit(1, 10.0, **used(0, "bob"))
    lone.training.settle()
    assert lone.values == [10.0 + 0.25 * 2.0]
    lone.step(1.0)
    lone.commit(2, 20.0, **used(1, "bob"))
    lone.training.settle()
    assert lone.values == [20.0 + 0.25 * 3.0]
    lone.step(1.0)
    assert sent(lone) == -4.0


async def test_what_is_owed_goes_with_the_next_contribution() -> None:
    desk = make_desk()
    outbox = Outbox(desk, refused=lambda *_: None)
    outbox.owe(0, flat(1.5))
    outbox.owe(0, flat(0.25))
    running = asyncio.create_task(outbox.run())
    await outbox.until_settled()
    running.cancel()
    residual = outbox.residuals[0]
    assert residual is not None
    assert torch.equal(residual, flat(1.75))


def test_it_needs_a_share_and_a_residual() -> None:
    for settings in ({}, {"mixing": 0.5, "error_feedback": False}):
        with pytest.raises(SettingsError, match="needs error_feedback = true, and mixing above 0"):
            algorithm_of(RunSettings(alignment="eager", **settings))
