"""One cell of the table of ``scripts/bench train``: a way to train, from one seed, to its end.

What exchanges is the real closer and the real parts of learners, over a store in memory and on
virtual time (``gradientmail.simulation``), so a cell has the same bits whenever it is run, and
inner steps are the only thing that takes long. All cells of a seed start from the same weights
and inner optimizer, trained for a while with every learner's batches at each step, and see the
same batches in the same order.
"""

import asyncio
import copy
import math
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from gradientmail.algorithms.presets import preset
from gradientmail.config import RunSettings, resolve
from gradientmail.operations.creating import create_run
from gradientmail.operations.exporting import export_run
from gradientmail.programs import gpt
from gradientmail.programs.source import Text
from gradientmail.simulation.actors import SimulatedCloser, SimulatedLearner
from gradientmail.simulation.loop import rng_of, run_virtual
from gradientmail.simulation.process import ClockError, Process
from gradientmail.simulation.scenario import Member
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore

CPU = torch.device("cpu")
SHAPE = gpt.Shape(layers=2, width=32, heads=2, context=64)
STEP_S = 1.0
"""Virtual seconds of the fastest learner's inner step."""

PATIENCE = 10
"""A fleet that has not ended after so many times the steps of a learner never would."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is trained, and for how long.

    Attributes:
        batch: Windows of one learner's step.
        common_steps: Steps that all cells of a seed have in common.
        steps: Steps of each learner after them.
        rate: Learning rate of the inner AdamW: reached after ``warm_steps`` steps, and falling
            along a cosine over all steps to a tenth.
    """

    shape: gpt.Shape = SHAPE
    learners: int = 4
    batch: int = 16
    common_steps: int = 5000
    steps: int = 1200
    rate: float = 16e-3
    warm_steps: int = 50
    held_out_windows: int = 1024

    def rate_at(self, share: float) -> float:
        """Return the inner learning rate when ``share`` of all steps are done."""
        total = self.common_steps + self.steps
        if share * total < self.warm_steps:
            return self.rate * (share * total + 1) / self.warm_steps
        return self.rate * (0.55 + 0.45 * math.cos(math.pi * min(1.0, share)))


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A way to train over a store.

    Attributes:
        preset: The preset that ``settings`` change.
        speeds: Of each learner, relative to the fastest; empty: all the same.
        by_arrival: Each contribution closes a round of its own.
    """

    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    speeds: tuple[float, ...] = ()
    by_arrival: bool = False


@dataclass(frozen=True)
class Alone:
    """One learner and nobody else: with all tokens, or, in ``share``, with its part of them."""

    share: bool = False


@dataclass(frozen=True)
class AllReduce:
    """Gradients of all learners are averaged at each step."""


@dataclass(frozen=True)
class Common:
    """Nobody: what all ways begin with."""


Way = Fleet | Alone | AllReduce | Common


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How a cell ended.

    Attributes:
        loss: Held-out nats per byte.
        up_bits: Payload bits a learner sent, per parameter (of each learner, on average).
        down_bits: Payload bits it received.
        tokens: Trained on after the common start, by all learners together.
        steps: The most steps that one learner took.
        cpu_s: What the cell took here.
    """

    loss: float
    up_bits: float
    down_bits: float
    tokens: int
    steps: int
    cpu_s: float


@dataclass(frozen=True, kw_only=True)
class Start:
    """What all cells of a seed begin with."""

    task: Task
    seed: int
    text: Text
    model: nn.Module
    optimizer: dict[str, Any]


class Trainee:
    """See ``gradientmail.simulation.trainee``. ``total``: its steps from the common start on."""

    def __init__(self, start: Start, sources: Sequence[int], total: int) -> None:
        self.model: nn.Module = copy.deepcopy(start.model)
        self.optimizer = _adamw(self.model)
        if start.optimizer:
            self.optimizer.load_state_dict(copy.deepcopy(start.optimizer))
        self._task, self._total, self._step = start.task, total, 0
        self._batches = [
            gpt.training_windows(start.text, start.task.shape.context, start.task.batch, seed, CPU)
            for seed in sources
        ]

    def step(self, *, spoil: bool = False) -> int:
        """Take one inner step on one batch of each source."""
        del spoil
        task = self._task
        done = task.common_steps + task.steps * self._step / self._total
        self._take(task.rate_at(done / (task.common_steps + task.steps)))
        self._step += 1
        return task.batch * task.shape.context * len(self._batches)

    def common_step(self, step: int) -> None:
        """Take a step of the common start."""
        self._take(self._task.rate_at(step / (self._task.common_steps + self._task.steps)))

    def _take(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        batch = torch.cat([next(batches) for batches in self._batches])
        gpt.loss(self.model, batch).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def start_of(task: Task, seed: int, text: Text) -> Start:
    """Train the common start of a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = gpt.GPT(task.shape)
    bare = Start(task=task, seed=seed, text=text, model=model, optimizer={})
    trainee = Trainee(bare, _sources(task, seed, "common"), task.common_steps)
    for step in range(task.common_steps):
        trainee.common_step(step)
    return Start(
        task=task,
        seed=seed,
        text=text,
        model=trainee.model,
        optimizer=trainee.optimizer.state_dict(),
    )


def train(start: Start, way: Way) -> Trained:
    """Train one cell to its end, in one thread.

    Raises:
        TimeoutError: it came to no end.
    """
    began = time.process_time()
    match way:
        case Fleet():
            model, up_bits, down_bits, tokens, steps = run_virtual(_FleetRun(start, way).run())
        case AllReduce():
            model, tokens, steps = _by_itself(start, len(_sources(start.task, start.seed)), 1)
            up_bits = down_bits = 32.0 * steps
        case Alone(share=share):
            times = 1 if share else start.task.learners
            model, tokens, steps = _by_itself(start, 1, times)
            up_bits = down_bits = 0.0
        case Common():
            model, tokens, steps = start.model, 0, 0
            up_bits = down_bits = 0.0
    return Trained(
        loss=held_out_loss(model, start),
        up_bits=up_bits,
        down_bits=down_bits,
        tokens=tokens,
        steps=steps,
        cpu_s=time.process_time() - began,
    )


def held_out_loss(model: nn.Module, start: Start) -> float:
    """Return nats per byte on windows of the held-out files."""
    task = start.task
    held_out = gpt.HeldOut(start.text, task.shape.context, CPU, count=task.held_out_windows)
    return held_out(model)


def parameters_of(model: nn.Module) -> int:
    """Return how many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())


def _by_itself(start: Start, sources: int, times: int) -> tuple[nn.Module, int, int]:
    steps = start.task.steps * times
    trainee = Trainee(start, _sources(start.task, start.seed)[:sources], steps)
    tokens = sum(trainee.step() for _ in range(steps))
    return trainee.model, tokens, steps


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )


def _sources(task: Task, seed: int, part: str = "") -> list[int]:
    """Return of each learner where its batches are drawn from."""
    return [rng_of("data", part, seed, one).getrandbits(48) for one in range(task.learners)]


# -- over a store -----------------------------------------------------------------------------


class PayloadMeter(MeteredStore):
    """Counts the data bytes of payloads, without headers and without the first version."""

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._inner.put(key, buffers)
        if key.startswith("mail/"):
            self.meter.up_bytes += _data_bytes(b"".join(buffers))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        data = await self._inner.read(key, start, end)
        if data and key.startswith("fragments/") and int(key.split("/")[2]) > 0 and start == 0:
            self.meter.down_bytes += _data_bytes(data)
        return data

    async def create(self, key: str, data: bytes) -> Any:
        """See ``Store.create``."""
        return await self._inner.create(key, data)


def _data_bytes(payload: bytes) -> int:
    return len(payload) - 8 - int.from_bytes(payload[:8], "little")


class _FleetRun:
    """One fleet over one store in memory, from the run's creation to its end."""

    def __init__(self, start: Start, fleet: Fleet) -> None:
        self._start, self._fleet = start, fleet
        self._store = MemoryStore()
        self._trainees: list[_Counting] = []

    async def run(self) -> tuple[nn.Module, float, float, int, int]:
        """Return the committed model, bits up and down per parameter, tokens and steps."""
        task, model = self._start.task, copy.deepcopy(self._start.model)
        init = self._process("init")
        settings = settings_of(self._fleet, task)
        await create_run(self._store, model, settings, clock=init.clock, rng=init.rng)
        meters = [Meter() for _ in range(task.learners)]
        with tempfile.TemporaryDirectory(prefix="gradientmail-") as scratch:
            closing = asyncio.create_task(self._closer(Path(scratch)).run())
            async with asyncio.timeout(PATIENCE * STEP_S * task.steps):
                await asyncio.gather(*(self._learner(i, m) for i, m in enumerate(meters)))
                await closing
            out = Path(scratch, "model.safetensors")
            await export_run(self._store, out, model=model)
            model.load_state_dict(safetensors.torch.load_file(out))
        share = 8.0 / parameters_of(model) / task.learners
        return (
            model,
            share * sum(meter.up_bytes for meter in meters),
            share * sum(meter.down_bytes for meter in meters),
            sum(trainee.tokens for trainee in self._trainees),
            max(trainee.steps for trainee in self._trainees),
        )

    def _process(self, name: str) -> Process:
        return Process(name, ClockError(), rng_of("train", self._start.seed, name))

    def _closer(self, spool: Path) -> SimulatedCloser:
        member = Member(role="closer", slot="closer", name="closer", compute_s=0.01)
        return SimulatedCloser(self._process("closer"), member, self._store, spool)

    async def _learner(self, index: int, meter: Meter) -> None:
        name = f"learner-{index}"
        speed = self._fleet.speeds[index] if self._fleet.speeds else 1.0
        step_s = STEP_S / speed
        member = Member(role="learner", slot=name, name=name, compute_s=0.01, step_s=step_s)
        store: Store = PayloadMeter(self._store, meter)
        learner = SimulatedLearner(
            self._process(name), member, store, {}, self._trainee(index, speed)
        )
        await learner.run()

    def _trainee(self, index: int, speed: float) -> Callable[[random.Random], "_Counting"]:
        task = self._start.task
        mean = sum(self._fleet.speeds or [1.0]) / len(self._fleet.speeds or [1.0])
        total = round(task.steps * speed / mean)

        def make(_: random.Random) -> _Counting:
            source = _sources(task, self._start.seed)[index]
            trainee = _Counting(Trainee(self._start, [source], total))
            self._trainees.append(trainee)
            return trainee

        return make


class _Counting:
    """A trainee whose steps and tokens are counted."""

    def __init__(self, trainee: Trainee) -> None:
        self.model = trainee.model
        self.steps = self.tokens = 0
        self._trainee = trainee

    def step(self, *, spoil: bool = False) -> int:
        tokens = self._trainee.step(spoil=spoil)
        self.steps += 1
        self.tokens += tokens
        return tokens


def settings_of(fleet: Fleet, task: Task) -> RunSettings:
    """Return the settings of the run: rounds for exactly the task's tokens."""
    quiet = {"poll_s": 0.25, "lease_s": 60.0, "presence_s": 120.0}
    chosen = {**preset(fleet.preset), **quiet, **fleet.settings}
    cycles = task.steps // chosen["sync_every"]
    if fleet.speeds:  # a cycle is of the fastest learner's steps; the others take fewer
        cycles = round(cycles * len(fleet.speeds) * max(fleet.speeds) / sum(fleet.speeds))
    rounds = cycles * chosen["fragments"] * (task.learners if fleet.by_arrival else 1)
    return resolve(RunSettings, ("train", {**chosen, "stop_after_rounds": rounds}))
