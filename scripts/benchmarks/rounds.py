"""How many of the ideal rounds close over a slow store, and what becomes of the steps.

Real time, real threads: four learners and a closer in one process over a store in memory that
answers every operation after 50 ms. A step sleeps 50 ms. The schedule has a round every
``H / P`` steps; ideal is one closed each time. A step is lost when its change is in no commit and
no longer in the model.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import gradientmail as gm
from benchmarks import peers
from benchmarks.frame import (
    ChildError,
    Figure,
    Options,
    Result,
    Skipped,
    at_least,
    at_most,
    in_child,
)
from benchmarks.logged import Log, LoggedStore
from gradientmail.mailbox import Mailbox
from gradientmail.records.commit import RoundRecord
from gradientmail.store import url as store_url
from gradientmail.store.memory import MemoryStore

LEARNERS = 4
SYNC_EVERY, FRAGMENTS = 80, 8
STEP_S = 0.05
LATENCY_S = 0.05
SECONDS = {"tiny": 2.0, "quick": 10.0, "full": 60.0}

CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "in_flight 8": {"in_flight": FRAGMENTS},
}


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    seconds = SECONDS[options.size]
    cases = list(CASES)[:1] if options.size != "full" else list(CASES)
    for case in cases:
        yield from figures(case, in_child("benchmarks.rounds:trained", case, seconds), "ours")
    if options.peer:
        yield from _peer(seconds)


def figures(case: str, found: dict[str, float], of: str) -> Iterator[Figure]:
    """Return the lines of one case; only ours have something to reach."""
    ours = of == "ours"
    yield Figure(
        what=f"{case}: rounds closed, of the ideal",
        value=100.0 * found["rounds"] / found["ideal"],
        unit="%",
        target=at_least(95.0) if ours else None,
        of=of,
        note=f"{found['rounds']:.0f} of {found['ideal']:.0f}",
        cpu_s=found["cpu_s"],
    )
    yield Figure(
        what=f"{case}: steps lost at each commit, of about {SYNC_EVERY}",
        value=round(found["lost"], 2),
        unit="steps",
        target=at_most(0.0) if ours else None,
        of=of,
    )
    yield Figure(
        what=f"{case}: training waited",
        value=round(100.0 * found["waited"], 3),
        unit="% of the time",
        target=at_most(0.0) if ours else None,
        of=of,
    )


# -- in a process of its own ----------------------------------------------------------------


def model() -> nn.Module:
    """Return eight equal layers: one for each fragment."""
    return nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(FRAGMENTS)))


def trained(case: str, seconds: float) -> dict[str, float]:
    """Train for that long; return what became of rounds and steps."""
    torch.set_num_threads(1)
    logging.getLogger("gradientmail").setLevel(logging.ERROR)
    store, log = MemoryStore(), Log()
    # The one way to put a store of our own beneath what opens stores by URL.
    store_url._memories["bench"] = LoggedStore(store, log, "all", LATENCY_S)  # type: ignore[assignment] # noqa: SLF001
    url = "memory://bench"
    gm.init(url, model(), sync_every=SYNC_EVERY, fragments=FRAGMENTS, **CASES[case])
    closer = gm.Closer(url)
    closing = threading.Thread(target=closer.run)
    closing.start()
    ready = threading.Barrier(LEARNERS + 1)
    learners = [_Training(url, f"learner-{i}", seconds, ready) for i in range(LEARNERS)]
    for one in learners:
        one.start()
    ready.wait()
    cpu = time.process_time()
    for one in learners:
        one.trained.wait()
    cpu = time.process_time() - cpu
    records = asyncio.run(_commits(Mailbox(store)))
    ready.wait()
    for one in learners:
        one.join()
    closer.request_stop()
    closing.join()
    lost = sum(one.lost(records) for one in learners)
    return {
        "rounds": len(records),
        "ideal": seconds / (STEP_S * SYNC_EVERY / FRAGMENTS),
        "lost": lost / LEARNERS / max(1, len(records)),
        "waited": sum(one.waited_s for one in learners) / LEARNERS / seconds,
        "cpu_s": cpu,
    }


class _Training(threading.Thread):
    """One learner in a thread of its own."""

    def __init__(self, url: str, name: str, seconds: float, ready: threading.Barrier) -> None:
        super().__init__()
        self._url, self._learner, self._seconds, self._ready = url, name, seconds, ready
        self.trained = threading.Event()
        self.waited_s = 0.0

    def run(self) -> None:
        own = model()
        with gm.Learner(self._url, own, name=self._learner) as learner:
            self._ready.wait()
            until = time.monotonic() + self._seconds
            while time.monotonic() < until:
                time.sleep(STEP_S)
                with torch.no_grad():
                    for parameter in own.parameters():
                        parameter.add_(torch.randn_like(parameter), alpha=1e-3)
                learner.step(tokens=1)
            training = learner._training  # noqa: SLF001 - where its steps are told apart
            self.waited_s = learner.progress.waited_s
            self._anchored = training.publishing.anchored_at
            self._versions = learner.progress.versions
            self.trained.set()
            self._ready.wait()
            learner.request_stop()

    def lost(self, records: list[RoundRecord]) -> int:
        """Return steps before the anchors that no commit up to them holds, of all fragments."""
        held = sum(
            one.steps
            for record in records
            if record.version <= self._versions[record.fragment]
            for one in record.participants
            if one.learner == self._learner
        )
        return sum(self._anchored) - held


async def _commits(mailbox: Mailbox) -> list[RoundRecord]:
    records = []
    for fragment in range(FRAGMENTS):
        version = 1
        while found := await mailbox.commit(fragment, version):
            records.append(found[0])
            version += 1
    return records


# -- the peer -------------------------------------------------------------------------------


def _peer(seconds: float) -> Iterator[Result]:
    peer = peers.GRADIENTMAIL_002
    for case in CASES:
        try:
            python = peers.python_of(peer)
            arguments = (case, seconds, LEARNERS, SYNC_EVERY, FRAGMENTS, STEP_S, LATENCY_S)
            found = in_child("benchmarks.peer_gradientmail:rounds", *arguments, python=python)
        except (peers.PeerError, ChildError) as error:
            yield Skipped(what=f"{peer.name}, {case}", reason=str(error))
            continue
        yield from figures(case, found, peer.name)
