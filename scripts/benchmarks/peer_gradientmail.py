"""What drives gradientmail 0.0.2, another project, in its own environment (Python 3.12).

It shares our import name, so nothing of ours is imported here. Its API as its README shows it: a
``Session`` for each node, in threads over one mailbox in memory, which here takes a while for each
operation and counts them.
"""

# ruff: noqa: SLF001 - what a peer counts inside is nowhere else to be seen

import asyncio
import importlib
import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.models import compared, trainer

gm: Any = importlib.import_module("gradientmail")

CASES: dict[str, tuple[dict[str, Any], float]] = {
    "as it comes": ({}, 1.0),
    "in_flight 8": ({"in_flight": 8, "alignment": gm.Carry()}, 0.25),
}
"""What is set of the algorithm, and the poll interval: as it comes, and what was best here."""


class Counted:
    """One node's view of a shared mailbox: slow, and counted by operation and part of the run."""

    def __init__(self, inner: Any, latency_s: float = 0.0) -> None:
        self._inner, self._latency_s = inner, latency_s
        self.calls: Counter[str] = Counter()

    async def put_if_absent(self, key: str, data: bytes) -> bool:
        await self._enter("put", key)
        return bool(await self._inner.put_if_absent(key, data))

    async def get(self, key: str) -> bytes | None:
        await self._enter("read", key)
        found: bytes | None = await self._inner.get(key)
        return found

    async def list(self, prefix: str, *, after: str = "") -> Any:
        await self._enter("list", prefix)
        return await self._inner.list(prefix, after=after)

    async def delete(self, keys: Any) -> None:
        await self._enter("delete", "")
        await self._inner.delete(keys)

    def clock(self) -> Any:
        return self._inner.clock()

    async def _enter(self, what: str, key: str) -> None:
        self.calls[f"{what} {key.partition('/')[0].removesuffix('.json')}"] += 1
        if self._latency_s:
            await asyncio.sleep(self._latency_s)


class Node(threading.Thread):
    """One session in a thread of its own, taking steps of ``step_s`` until ``stop`` is set."""

    def __init__(self, mailbox: Any, name: str, fragments: int, step_s: float, **session: Any):
        super().__init__(daemon=True)
        self.model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(fragments)))
        self.session = gm.Session(
            self.model, mailbox=mailbox, node_id=name, callbacks=(), **session
        )
        self.name, self.step_s, self.mailbox = name, step_s, mailbox
        self.stop, self.trained, self.leave = (threading.Event() for _ in range(3))
        self.steps = 0
        self.waited_s = 0.0
        self.left: tuple[Any, ...] = ()

    def run(self) -> None:
        try:
            self.session.run(self._step, self._batches())
        finally:
            self.trained.set()

    def _batches(self) -> Iterator[int]:
        returned = time.monotonic()
        while not self.stop.is_set():
            yield self.steps
            self.waited_s += max(0.0, time.monotonic() - returned - self.step_s - 0.01)
            returned = time.monotonic()
        state = self.session._learner._state
        self.left = (state.local_step, state.steps, state.applied_version)
        self.trained.set()
        self.leave.wait()

    def _step(self, _batch: int) -> int:
        time.sleep(self.step_s)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=1e-3)
        self.steps += 1
        return 1


def rounds(  # the arguments of ``benchmarks.rounds``
    case: str,
    seconds: float,
    learners: int,
    sync_every: int,
    fragments: int,
    step_s: float,
    latency_s: float,
) -> dict[str, float]:
    """Train for that long; return what became of rounds and steps."""
    _quiet()
    changes, poll_s = CASES[case]
    store = gm.MemoryMailbox()
    algorithm = gm.DiLoCo(sync_every=sync_every, fragments=fragments, **changes)
    nodes = [
        Node(
            Counted(store, latency_s),
            f"node-{index}",
            fragments,
            step_s,
            algorithm=algorithm,
            poll_interval=poll_s,
        )
        for index in range(learners)
    ]
    for node in nodes:
        node.session.join()
    cpu = time.process_time()
    for node in nodes:
        node.start()
    time.sleep(seconds)
    for node in nodes:
        node.stop.set()
    cpu = time.process_time() - cpu
    for node in nodes:
        node.trained.wait()
    records = _records(store)
    lost = sum(_lost(node, records) for node in nodes)
    return {
        "rounds": len(records),
        "ideal": seconds / (step_s * sync_every / fragments),
        "lost": lost / learners / max(1, len(records)),
        "waited": sum(node.waited_s for node in nodes) / learners / seconds,
        "cpu_s": cpu,
    }


def _lost(node: Node, records: list[dict[str, Any]]) -> int:
    """Return steps that are in no commit and count no longer, of all fragments."""
    steps, open_steps, versions = node.left
    held = sum(
        one["steps"]
        for record in records
        if record["version"] <= versions[record["fragment"]]
        for one in record["participants"]
        if one["learner"] == node.name
    )
    return int(steps * len(versions) - sum(open_steps) - held)


def requests(fragments: int, learners: int, past_rounds: int) -> list[tuple[str, float, str]]:
    """Count the operations of nodes: idle, in a round, joining; (what, how many, of what)."""
    _quiet()
    return [
        *_idle(fragments, learners),
        *_steady(fragments, learners, past_rounds),
    ]


def _idle(fragments: int, learners: int) -> list[tuple[str, float, str]]:
    nodes = _fleet(gm.MemoryMailbox(), fragments, learners, 100_000, step_s=0.05)
    time.sleep(1.0)
    before = _calls(nodes)
    time.sleep(5.0)
    calls = _calls(nodes) - before
    _abandon(nodes)
    # In each node a learner and a closer look for rounds, once a poll each.
    polls = calls["list rounds"] / 2
    listings = sum(count for kind, count in calls.items() if kind.startswith("list"))
    return [
        ("idle minute: all, per learner", 60.0 * calls.total() / polls, "at a poll a second"),
        ("idle: listings of a node in a poll", listings / polls, _said(calls, polls)),
    ]


POLL_S = 0.05


def _steady(fragments: int, learners: int, past: int) -> list[tuple[str, float, str]]:
    store = gm.MemoryMailbox()
    nodes = _fleet(store, fragments, learners, fragments * 16, step_s=0.01)
    while not _records(store):
        time.sleep(0.1)
    before, seen = _calls(nodes), len(_records(store))
    began = time.monotonic()
    while len(_records(store)) < past and time.monotonic() - began < 120.0:
        time.sleep(0.1)
    calls, there = _calls(nodes) - before, len(_records(store))
    per = max(1, there - seen) * learners
    joining = Counted(store)
    newcomer = Node(
        joining,
        "newcomer",
        fragments,
        0.01,
        algorithm=nodes[0].session._algorithm,
        poll_interval=1000.0,
        role="learner",
    )
    newcomer.session._learner.start()
    joined = Counter(joining.calls)
    _abandon(nodes)
    polls = (time.monotonic() - began) / POLL_S / max(1, there - seen)
    note = f"{polls:.0f} polls a round; {_said(calls, per)}"
    return [
        ("round: all, per learner", calls.total() / per, note),
        ("join", float(joined.total()), f"after {there} rounds: {_said(joined, 1.0)}"),
    ]


def _fleet(
    store: Any, fragments: int, learners: int, sync_every: int, step_s: float
) -> list[Node]:
    algorithm = gm.DiLoCo(sync_every=sync_every, fragments=fragments)
    nodes = [
        Node(
            Counted(store),
            f"node-{index}",
            fragments,
            step_s,
            algorithm=algorithm,
            poll_interval=POLL_S,
        )
        for index in range(learners)
    ]
    for node in nodes:
        node.session.join()
    for node in nodes:
        node.start()
    return nodes


def _calls(nodes: list[Node]) -> Counter[str]:
    total: Counter[str] = Counter()
    for node in nodes:
        total += node.mailbox.calls
    return total


def _said(calls: Counter[str], per: float) -> str:
    return ", ".join(f"{kind} {count / per:.3g}" for kind, count in calls.most_common(6))


def _abandon(nodes: list[Node]) -> None:
    """Let them be: their threads are daemons, and this process ends soon."""
    for node in nodes:
        node.stop.set()


def _records(store: Any) -> list[dict[str, Any]]:
    found = dict(store._store)
    return [json.loads(data) for key, data in found.items() if key.startswith("rounds/")]


def _quiet() -> None:
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)


# -- overhead -------------------------------------------------------------------------------


def overhead(kind: str, sync_every: int, fragments: int, repetitions: int) -> dict[str, Any]:
    """Train bare and with a session in turn, as ``benchmarks.overhead`` does.

    Its closer runs in a thread of the same process, as its README has it; all but the training
    thread have the other core.
    """
    _quiet()
    cores = sorted(os.sched_getaffinity(0))
    ours = trainer(kind)
    os.sched_setaffinity(0, cores[-1:])
    session = gm.Session(
        ours.model,
        algorithm=gm.DiLoCo(
            sync_every=sync_every, fragments=fragments, in_flight=min(2, fragments)
        ),
        mailbox=gm.MemoryMailbox(),
        poll_interval=0.25,
        callbacks=(),
    )
    session.join()
    os.sched_setaffinity(0, cores[:1])

    def step() -> None:
        ours.step()
        session._learner.step(ours.tokens)

    return compared(ours.step, step, sync_every, repetitions)
