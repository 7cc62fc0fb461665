"""Learners and closers of one run, each in a thread of this process."""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from torch import nn

import gradientmail as gm
from gradientmail.clock import Clock, SystemClock, system_random
from gradientmail.config import NodeSettings, RunSettings, resolve
from gradientmail.learner.posts import Progress
from gradientmail.operations.creating import create_run
from gradientmail.records.manifest import Manifest
from gradientmail.store.base import Store
from gradientmail.store.url import open_store
from tests.e2e.toy import BATCH, Points, toy_loss, toy_model

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long anything here may take on a busy machine; nothing is expected to come near it."""

PACE_S = 0.002
"""A learner leaves the processor this long after each step: three of them share it."""

QUICK = {"poll_s": 0.03, "lease_s": 2.0, "presence_s": 3.0}


@dataclass(frozen=True, kw_only=True)
class Trained:
    """How a learner ended."""

    progress: Progress
    model: nn.Module


class Team:
    """A context manager: what still runs at its end is asked to stop, and waited for."""

    def __init__(self, url: str | Path) -> None:
        self.url = str(url)
        self._stops: list[Callable[[], None]] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for stop in self._stops:
            stop()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def closer(self, name: str = "closer", *, clock: Clock | None = None) -> "Future[None]":
        """Start a closer that serves until the run has ended."""
        closer = gm.Closer(self.url, node=NodeSettings(name=name), clock=clock)
        self._stops.append(closer.request_stop)
        return self._start(lambda: closer.run(until_done=True))

    def learner(
        self,
        name: str,
        *,
        leave_if: Callable[[gm.Learner], bool] = lambda learner: False,
        seed: int | None = None,
        state_dir: Path | None = None,
        clock: Clock | None = None,
        tags: str = "",
    ) -> "Future[Trained]":
        """Start a learner that trains until the run ends or ``leave_if`` says so."""
        model = toy_model(seed=99)
        optimizer = torch.optim.SGD(model.parameters(), 0.02)
        points = Points(random.Random(name).randrange(1000) if seed is None else seed)
        learner = gm.Learner(
            self.url,
            model,
            optimizer=optimizer,
            name=name,
            state_dir=state_dir,
            position=points,
            node=NodeSettings(tags=tags),
            clock=clock,
        )
        self._stops.append(learner.request_stop)

        def train() -> Trained:
            with learner:
                while not learner.done and not leave_if(learner):
                    loss = toy_loss(model, next(points))
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    learner.step(tokens=BATCH, samples=BATCH, loss=loss)
                    time.sleep(PACE_S)
            return Trained(progress=learner.progress, model=model)

        return self._start(train)

    def _start(self, act: Callable[[], T]) -> "Future[T]":
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(act())
            except BaseException as error:  # noqa: BLE001 - it is the test's to see
                future.set_exception(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self._threads.append(thread)
        return future


def make_run(url: str | Path, preset: str = "diloco", **settings: Any) -> Manifest:
    """Create a run of the toy model: a preset's settings, but quick ones, and ``settings``."""
    resolved = resolve(
        RunSettings, ("preset", gm.preset(preset)), ("quick", QUICK), ("test", settings)
    )
    manifest: Manifest = on_store(
        url,
        lambda store: create_run(
            store, toy_model(), resolved, clock=SystemClock(), rng=system_random()
        ),
    )
    return manifest


def on_store(url: str | Path, act: Callable[[Store], Any]) -> Any:
    """Return what the coroutine ``act`` does with the store at ``url``."""

    async def acting() -> Any:
        store = open_store(str(url), clock=SystemClock(), rng=system_random())
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(acting())


def objects_of(url: str | Path) -> dict[str, bytes]:
    """Return every object there is."""

    async def reading(store: Store) -> dict[str, bytes]:
        found = {entry.key: await store.read(entry.key) for entry in await store.list("")}
        return {key: data for key, data in found.items() if data is not None}

    objects: dict[str, bytes] = on_store(url, reading)
    return objects


def keys_of(url: str | Path, prefix: str = "") -> list[str]:
    """Return the keys there are."""

    async def listing(store: Store) -> list[str]:
        return [entry.key for entry in await store.list(prefix)]

    keys: list[str] = on_store(url, listing)
    return keys


def until_seen(url: str | Path, *learners: str) -> None:
    """Wait until learners have shown: a closer that starts then waits for all of them."""
    wanted = {f"learners/{name}.json" for name in learners}
    eventually(lambda: wanted <= set(keys_of(url, "learners/")))


def is_committed(url: str | Path, version: int, fragment: int = 0) -> bool:
    """Whether ``version`` of ``fragment`` is there."""
    key = f"commits/{fragment:04d}/{version:010d}.json"
    return bool(on_store(url, lambda store: store.read(key, 0, 1)))


def eventually(condition: Callable[[], Any], *, timeout_s: float = PATIENCE_S) -> None:
    """Return once ``condition`` holds; what it waits for is in the store, not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
