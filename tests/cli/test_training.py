"""A learner's loop: no batch is wasted, its speed is shared out, its data is its own."""

import asyncio
import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gradientmail.cli.training import train
from gradientmail.learner.program import Program
from tests.cli.conftest import make_run
from tests.cli.processes import Command, mailbox
from tests.cli.programs import Batches, loss, tiny


@dataclass
class Listener:
    """A learner of which only the steps are heard; done after ``limit`` of them."""

    limit: int
    name: str = "alice"
    weighs_samples: bool = False
    steps: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    progress: Any = field(
        default_factory=lambda: SimpleNamespace(steps=0, tokens=0, loss=None, versions=(0,))
    )

    @property
    def run(self) -> Any:
        return SimpleNamespace(name="run-1", weighs_samples=self.weighs_samples)

    def step(self, tokens: int, loss: torch.Tensor, samples: int) -> None:
        self.steps.append(tokens)
        self.samples.append(samples)

    @property
    def done(self) -> bool:
        return len(self.steps) >= self.limit


@dataclass
class Clock:
    """Each look at it takes a second; sleeps take as long as they say."""

    time_s: float = 0.0
    slept_s: float = 0.0

    def now(self) -> float:
        self.time_s += 1.0
        return self.time_s

    def wall(self) -> float:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


def program(end: int | None = None) -> Program:
    model, optimizer, _, _ = tiny(seed=0, data_seed=0)
    return Program(model, optimizer, Batches(0, end), loss)


def test_it_ends_when_the_learner_is_done_with_no_batch_taken_in_vain() -> None:
    training, learner = program(), Listener(limit=3)

    train(learner, training, Clock(), share=1.0)

    assert learner.steps == [4, 4, 4]
    assert training.batches.taken == 3


def test_it_ends_with_the_batches() -> None:
    learner = Listener(limit=100)

    train(learner, program(end=2), Clock(), share=1.0)

    assert learner.steps == [4, 4]


def test_examples_are_counted_where_they_weigh() -> None:
    apart, weighed = Listener(limit=2), Listener(limit=2, weighs_samples=True)

    for learner in (apart, weighed):
        train(learner, replace(program(), tokens=lambda _: 50), Clock(), share=1.0)

    assert (apart.steps, apart.samples) == ([50, 50], [0, 0])
    assert (weighed.steps, weighed.samples) == ([50, 50], [4, 4])


def test_the_model_learns() -> None:
    training = program()
    before = [parameter.clone() for parameter in training.model.parameters()]

    train(Listener(limit=1), training, Clock(), share=1.0)

    after = training.model.parameters()
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_quarter_of_the_speed_sleeps_three_quarters_of_the_time() -> None:
    clock = Clock()

    train(Listener(limit=2), program(), clock, share=0.25)

    assert clock.slept_s == 2 * 3 * 1.0


def test_a_signal_ends_it_cleanly_and_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    url = tmp_path / "run"
    make_run(url, sync_every=10, poll_s=0.05)
    words = ("learner", url, "--name", "alice", "--state-dir", tmp_path / "state")

    with Command(*words, "--with-closer") as learner:
        learner.read_until("closed round 1")
        learner.process.send_signal(signal.SIGINT)
        assert learner.ended() == 0
    presence = asyncio.run(mailbox(url).presence("alice"))
    assert presence is not None
    assert presence.left
    assert presence.steps >= 20

    with Command(*words) as learner:
        learner.read_until(f"restored at step {presence.steps}")
