"""Step time of a training loop with a learner in it, against the bare loop.

One compute thread, pinned to one core; the learner's exchange and the closer, a process of its
own, have the other. A repetition is one cycle of H steps with the learner between two halves of a
bare one, of the same model; steps that take a snapshot and steps that align are in it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import gradientmail as gm
from benchmarks import peers
from benchmarks.frame import (
    ROOT,
    ChildError,
    Figure,
    Options,
    Result,
    Skipped,
    at_most,
    in_child,
)
from benchmarks.models import compared, trainer

CASES = (("gpt", 20, 1), ("gpt", 40, 4), ("gpt", 80, 8), ("conv", 20, 1), ("conv", 40, 4))

_STEPS = 500
"""Timed with the learner, about: a percent of a step is less than steps differ."""

PEERS = (
    (peers.GRADIENTMAIL_002, "peer_gradientmail"),
    (peers.TORCHFT, "peer_torchft"),  # alone: a second replica group would have to wait for it
)


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    cases = {"tiny": (("conv", 2, 1),), "quick": (("conv", 20, 1),), "full": CASES}[options.size]
    for kind, sync_every, fragments in cases:
        times = options.repetitions
        if options.size == "full":
            times = max(times, _STEPS // sync_every)
        arguments = (kind, sync_every, fragments, times)
        case = f"{kind}, H {sync_every}, P {fragments}"
        found = in_child("benchmarks.overhead:measured", *arguments)
        yield from figures(case, found, "ours")
        if options.peer and fragments == 1:
            yield from _peer(case, arguments)


def figures(case: str, found: dict[str, Any], of: str) -> Iterator[Figure]:
    """Return the lines of one case; only ours have something to reach."""
    ours = of == "ours"
    extra = [100.0 * (ratio - 1.0) for ratio in found["mean"]]
    cpu = [100.0 * (ratio - 1.0) for ratio in found["cpu"]]
    yield Figure(
        what=f"{case}: mean step, above the bare one",
        value=round(statistics.median(extra), 2),
        low=min(extra),
        high=max(extra),
        unit="%",
        target=at_most(1.0) if ours else None,
        wall_s=found["bare_s"],
        of=of,
    )
    yield Figure(
        what=f"{case}: the same in CPU seconds of the training thread",
        value=round(statistics.median(cpu), 2),
        low=min(cpu),
        high=max(cpu),
        unit="%",
        target=at_most(1.0) if ours else None,
        cpu_s=found["bare_cpu_s"],
        of=of,
    )
    if "inside_s" in found:
        yield Figure(
            what=f"{case}: in learner.step alone, CPU seconds of the training thread",
            value=round(100.0 * found["inside_s"] / found["bare_cpu_s"], 2),
            unit="% of a bare step",
        )
    worst = found["worst"]
    bare_worst = statistics.median(found["bare_worst"])
    yield Figure(
        what=f"{case}: worst step of a cycle, above the median",
        value=round(statistics.median(worst), 2),
        low=min(worst),
        high=max(worst),
        unit="bare steps",
        target=at_most(1.0) if ours else None,
        of=of,
        note=f"of bare cycles {bare_worst:.2f}",
    )


# -- in a process of its own ----------------------------------------------------------------


def measured(kind: str, sync_every: int, fragments: int, repetitions: int) -> dict[str, Any]:
    """Train bare and with a learner in turn; return ratios, repetition by repetition."""
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    ours = trainer(kind)
    with tempfile.TemporaryDirectory(prefix="gradientmail-bench-") as scratch:
        url = str(Path(scratch, "run"))
        gm.init(
            url,
            ours.model,
            sync_every=sync_every,
            fragments=fragments,
            in_flight=min(2, fragments),
            poll_s=0.25,
        )
        os.sched_setaffinity(0, cores[-1:])  # what is started from here on has the other core
        closer = _closer(url)
        try:
            with gm.Learner(url, ours.model, name="learner") as learner:
                os.sched_setaffinity(0, cores[:1])

                inside_s: list[float] = []

                def step() -> None:
                    ours.step()
                    began = time.thread_time()
                    learner.step(tokens=ours.tokens)
                    inside_s.append(time.thread_time() - began)

                found = compared(ours.step, step, sync_every, repetitions)
                learner.request_stop()
                found["inside_s"] = statistics.mean(inside_s[-repetitions * sync_every :])
        finally:
            closer.terminate()
            closer.wait()
    return found


def _closer(url: str) -> subprocess.Popen[bytes]:
    code = "from gradientmail.cli.main import main; main()"
    command = [sys.executable, "-c", code, "closer", url, "--until-done"]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


# -- the peer -------------------------------------------------------------------------------


def _peer(case: str, arguments: tuple[Any, ...]) -> Iterator[Result]:
    for peer, module in PEERS:
        try:
            python = peers.python_of(peer)
            found = in_child(f"benchmarks.{module}:overhead", *arguments, python=python)
        except (peers.PeerError, ChildError) as error:
            yield Skipped(what=f"{case}, {peer.name}", reason=str(error))
            continue
        yield from figures(case, found, peer.name)
