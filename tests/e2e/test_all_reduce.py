"""`all-reduce`: two learners and a closer over a store end each round at the given weights."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

import gradientmail as gm
from gradientmail.clock import SystemClock, system_random
from gradientmail.codecs.streaming import decoded
from gradientmail.config import RunSettings, resolve
from gradientmail.operations.creating import create_run
from gradientmail.records import keys
from gradientmail.run import open_run
from tests.e2e.team import PATIENCE_S, QUICK, Team, objects_of, on_store

LEARNERS = {  # rows of x, and their y
    "ann": ([[1.0, 2.0], [-1.0, 1.0]], [1.0, 0.0]),
    "bob": ([[2.0, -1.0]], [0.5]),
}
ROUNDS = [  # numbers.md: weights, then bias
    (0.354166667, 0.0, 0.270833333),
    (0.298611111, 0.109375, 0.269097222),
    (0.280237269, 0.159722222, 0.258825231),
]


def begin(value: tuple[float, float, float]) -> nn.Linear:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([value[:2]]))
        model.bias.copy_(torch.tensor(value[2:]))
    return model


def learn(url: Path, name: str) -> None:
    rows, targets = (torch.tensor(part) for part in LEARNERS[name])
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with gm.Learner(str(url), model, optimizer=optimizer, name=name) as learner:
        while not learner.done:
            optimizer.zero_grad()
            error = model(rows).squeeze(1) - targets
            (error.square().sum() / len(rows)).backward()
            optimizer.step()
            learner.step(tokens=len(rows))


def test_three_rounds(tmp_path: Path) -> None:
    chosen = {"quorum": 2, "stop_after_rounds": 3, "keep_versions": 10}
    settings = resolve(
        RunSettings, ("preset", gm.preset("all-reduce")), ("quick", QUICK), ("test", chosen)
    )
    model = begin((0.5, -0.25, 0.25))
    on_store(
        tmp_path,
        lambda store: create_run(store, model, settings, clock=SystemClock(), rng=system_random()),
    )
    with Team(tmp_path) as team:
        threads = [threading.Thread(target=learn, args=(tmp_path, name)) for name in LEARNERS]
        for thread in threads:
            thread.start()
        team.closer().result(PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)
    run = on_store(tmp_path, open_run)
    objects = objects_of(tmp_path)
    (layout,) = run.layouts
    for number, expected in enumerate(ROUNDS, 1):
        prefix = f"{keys.payloads_of(0)}{number:010d}/"
        (key,) = (key for key in objects if key.startswith(prefix) and ".params." in key)
        flat = decoded(objects[key], run.algorithm.params_format(layout.numel), section="params")
        found = torch.cat([flat[slot.offset : slot.offset + slot.numel] for slot in layout.slots])
        assert found.tolist() == pytest.approx(expected, abs=1e-6)
