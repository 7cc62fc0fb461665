"""Models to train in benchmarks: plain torch, so that they train in peers' environments too."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A transformer block, pre-norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))  # type: ignore[no-any-return]


class Gpt(nn.Module):
    """A GPT over bytes: 4 layers of width 256, 3.3 M parameters."""

    def __init__(self, width: int = 256, layers: int = 4, length: int = 128) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


class Convolutions(nn.Module):
    """A residual convolutional net with batch normalization, 1.0 M parameters."""

    def __init__(self) -> None:
        super().__init__()

        def stage(inside: int, outside: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outside),
                nn.ReLU(),
                nn.Conv2d(outside, outside, 3, padding=1, bias=False),
                nn.BatchNorm2d(outside),
                nn.ReLU(),
            )

        self.stages = nn.Sequential(stage(3, 48), stage(48, 96), stage(96, 224))
        self.head = nn.Linear(224, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.stages(images).mean((2, 3)))  # type: ignore[no-any-return]


@dataclass
class Trainer:
    """A model, AdamW and random data; ``step`` is one inner step of ``tokens`` tokens."""

    model: nn.Module
    batch: Callable[[], tuple[Tensor, Tensor]]
    tokens: int

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self) -> None:
        inputs, targets = self.batch()
        loss = functional.cross_entropy(self.model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()


def trainer(kind: str) -> Trainer:
    """Return a trainer of a fresh model: "gpt" or "conv"."""
    torch.manual_seed(0)
    chance = torch.Generator().manual_seed(1)
    if kind == "gpt":

        def text() -> tuple[Tensor, Tensor]:
            drawn = torch.randint(256, (2, 129), generator=chance)
            return drawn[:, :-1], drawn[:, 1:]

        return Trainer(Gpt(), text, 256)

    def images() -> tuple[Tensor, Tensor]:
        drawn = torch.randn(24, 3, 32, 32, generator=chance)
        return drawn, torch.randint(10, (24,), generator=chance)

    return Trainer(Convolutions(), images, 24)


def timed(step: Callable[[], object], steps: int) -> tuple[list[float], float]:
    """Return the wall seconds of each of ``steps`` steps, and this thread's CPU seconds."""
    taken = []
    cpu = time.thread_time()
    for _ in range(steps):
        began = time.perf_counter()
        step()
        taken.append(time.perf_counter() - began)
    return taken, time.thread_time() - cpu


WARM_STEPS = 6
"""Bare ones before those that are timed: what is on its way from before comes to an end."""


def compared(
    bare: Callable[[], object], with_learner: Callable[[], object], steps: int, repetitions: int
) -> dict[str, Any]:
    """Time ``steps`` with the learner between two halves of as many bare ones, again and again.

    Both train the same model: two copies differ by up to 8 % with where their memory happens to
    lie. Nothing sleeps: a core that did is slow for some steps, by as much. What is left is the
    drift of the machine's pace, some percent from one second to the next. A round that comes every
    ``steps`` falls amid those that are timed, so what is done beside the steps after it counts.
    """
    half = -(-steps // 2)
    timed(bare, min(half, 10))
    timed(with_learner, 2 * steps + half)
    found: dict[str, Any] = {"mean": [], "cpu": [], "worst": [], "bare_worst": []}
    bare_s, bare_cpu_s = [], []
    for _ in range(repetitions):
        cycle = []
        for step, count in ((bare, half), (with_learner, steps), (bare, half)):
            timed(bare, WARM_STEPS)
            cycle.append(timed(step, count))
        (before, before_cpu), (ours, ours_cpu), (after, after_cpu) = cycle
        plain, plain_cpu = [*before, *after], (before_cpu + after_cpu) / (2 * half)
        median = statistics.median(plain)
        bare_s.append(median)
        bare_cpu_s.append(plain_cpu)
        found["mean"].append(statistics.mean(ours) / statistics.mean(plain))
        found["cpu"].append(ours_cpu / steps / plain_cpu)
        found["worst"].append(max(ours) / median - 1.0)
        found["bare_worst"].append(max(plain) / median - 1.0)
    found |= {"bare_s": statistics.median(bare_s), "bare_cpu_s": statistics.median(bare_cpu_s)}
    return found
