"""One learner or closer as a process of its own, which can be told where to die.

A point is ``before:OPERATION:PREFIX`` or ``after:OPERATION:PREFIX``, such as
``after:put:mail/0000/0000000002``: the process sends itself SIGKILL before, or after, the store
carries out an operation on a key with that prefix. ``before:save:7/`` is the learner's seventh
save of its state, ``after:step:12/`` its twelfth step. A learner that ends by itself writes what
it has become to NAME.json; what a process prints is in NAME.log.
"""

import json
import logging
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch._dynamo  # every optimizer imports it: once here, before processes fork
import xxhash

import gradientmail as gm
from gradientmail.closer import daemon
from gradientmail.config import NodeSettings
from gradientmail.learner import session
from gradientmail.learner.state import State, StateDir
from gradientmail.store.base import Created, Store
from gradientmail.store.url import open_store
from tests.e2e.toy import BATCH, Points, toy_loss, toy_model


class Deadly:
    """Kills this process when it passes one of its points."""

    def __init__(self, points: Sequence[str]) -> None:
        self._points = [point.split(":") for point in points]

    def passes(self, when: str, operation: str, what: str) -> None:
        for at, wanted, prefix in self._points:
            if (at, wanted) == (when, operation) and what.startswith(prefix):
                os.kill(os.getpid(), signal.SIGKILL)


class DeadlyStore:
    """``inner``, whose ``create`` and ``put`` are points."""

    def __init__(self, inner: Store, deadly: Deadly) -> None:
        self._inner, self._deadly = inner, deadly

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def create(self, key: str, data: bytes) -> Created:
        self._deadly.passes("before", "create", key)
        created = await self._inner.create(key, data)
        self._deadly.passes("after", "create", key)
        return created

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        self._deadly.passes("before", "put", key)
        await self._inner.put(key, buffers)
        self._deadly.passes("after", "put", key)


def arm(deadly: Deadly) -> None:
    """Put the points in place."""

    def opened(*args: Any, **kwargs: Any) -> Store:
        return cast("Store", DeadlyStore(open_store(*args, **kwargs), deadly))

    session.open_store = daemon.open_store = opened  # type: ignore[attr-defined]
    save, saves = StateDir.save, iter(range(1, 1_000_000))

    def deadly_save(self: StateDir, state: State) -> None:
        number = next(saves)
        deadly.passes("before", "save", f"{number}/")
        save(self, state)
        deadly.passes("after", "save", f"{number}/")

    StateDir.save = deadly_save  # type: ignore[method-assign]


@dataclass(frozen=True)
class Place:
    """Where a process is, and under which name.

    Attributes:
        home: Where its state, its output and its last words go.
    """

    url: str
    name: str
    home: Path
    save_every_s: float


def run_learner(place: Place, deadly: Deadly) -> None:
    torch.set_num_threads(1)
    seed = random.Random(place.name).randrange(1000)
    torch.manual_seed(seed)
    model = toy_model(seed=99, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    points = Points(seed)
    learner = gm.Learner(
        place.url,
        model,
        optimizer=optimizer,
        name=place.name,
        state_dir=place.home / place.name,
        position=points,
        node=NodeSettings(save_every_s=place.save_every_s),
    )
    with learner:
        while not learner.done:
            loss = toy_loss(model, next(points))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            deadly.passes("before", "step", f"{learner.progress.steps + 1}/")
            learner.step(tokens=BATCH, samples=BATCH, loss=loss)
            deadly.passes("after", "step", f"{learner.progress.steps}/")
    moments = [one[moment] for one in optimizer.state.values() for moment in sorted(one)]
    end = {
        "steps": learner.progress.steps,
        "tokens": learner.progress.tokens,
        "model": _digest(list(model.state_dict().values())),
        "optimizer": _digest(moments),
        "chance": _digest([torch.get_rng_state(), points.state_dict()["generator"]]),
    }
    (place.home / f"{place.name}.json").write_text(json.dumps(end))


def _digest(tensors: Sequence[torch.Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def main(role: str, place: Place, points: Sequence[str]) -> None:
    """Be the learner or the closer at ``place``."""
    with (place.home / f"{place.name}.log").open("ab") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    deadly = Deadly(points)
    arm(deadly)
    if role == "learner":
        run_learner(place, deadly)
    else:
        gm.Closer(place.url, node=NodeSettings(name=place.name)).run(until_done=True)
