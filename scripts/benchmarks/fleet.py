"""Three learners at 4.5 : 1 : 1, against the sum of the speeds each has alone.

Real processes over a directory: three learners and a closer. A step sleeps for most of its time,
so that two cores are no limit. Each learner's own speed is that of the bare loop in the same
process, before and after; a fleet that waits for its slowest would reach less than a half.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gradientmail as gm
from benchmarks.frame import ROOT, Figure, Options, Result, at_least, in_child
from gradientmail.clock import SystemClock, system_random
from gradientmail.run import open_run
from gradientmail.store.url import open_store

STEPS_S = {"fast": 0.02, "slow-1": 0.09, "slow-2": 0.09}
SECONDS = {"tiny": 1.0, "quick": 5.0, "full": 20.0}
SYNC_EVERY, FRAGMENTS = 200, 4


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    repetitions = {"tiny": 1, "quick": 1, "full": 5}[options.size]
    found = [_fleet(SECONDS[options.size]) for _ in range(repetitions)]
    shares = [_share(of, "rate", "alone") for of in found]
    yield Figure(
        what="steps of the fleet, of the sum of speeds",
        value=statistics.median(shares),
        low=min(shares),
        high=max(shares),
        unit="%",
        target=at_least(97.0),
        cpu_s=sum(one["cpu_s"] for one in found[0]),
        note=", ".join(f"{one['name']} {one['steps']:.0f} steps" for one in found[0]),
    )
    held = [_share(of, "held", "steps") for of in found]
    yield Figure(
        what="steps that commits hold at the end, of those taken",
        value=statistics.median(held),
        low=min(held),
        high=max(held),
        unit="%",
        note=f"the rest is in the models: less than a cycle of {SYNC_EVERY}",
    )
    rounds = [of[0]["rounds"] for of in found]
    yield Figure(
        what=f"rounds in {SECONDS[options.size]:.0f} s",
        value=statistics.median(rounds),
        unit="rounds",
        note=f"all that the fast learner's schedule has: {found[0][0]['due']:.0f}",
    )


def _share(fleet: list[dict[str, Any]], part: str, whole: str) -> float:
    """Return in percent how much of the fleet's ``whole`` its ``part`` is."""
    return 100.0 * float(sum(one[part] for one in fleet) / sum(one[whole] for one in fleet))


def _fleet(seconds: float) -> list[dict[str, Any]]:
    """Let a fleet train for that long; return what each did."""
    with tempfile.TemporaryDirectory(prefix="gradientmail-bench-") as scratch:
        url = str(Path(scratch, "run"))
        gm.init(url, model(), sync_every=SYNC_EVERY, fragments=FRAGMENTS, poll_s=0.25)
        closer = _closer(url)
        go = Path(scratch, "go")
        try:
            with ThreadPoolExecutor(len(STEPS_S)) as pool:
                running = [
                    pool.submit(in_child, "benchmarks.fleet:trained", url, name, step_s, seconds)
                    for name, step_s in STEPS_S.items()
                ]
                while len(list(Path(scratch).glob("run.ready-*"))) < len(STEPS_S):
                    time.sleep(0.05)
                    for one in running:
                        if one.done():
                            one.result()
                go.touch()
                found = [one.result() for one in running]
        finally:
            closer.terminate()
            closer.wait()
        commits = asyncio.run(_held(url))
    for one in found:
        one["held"] = sum(commits.get(one["name"], {}).values()) / FRAGMENTS
        one["rounds"] = commits["*"][0]
        one["due"] = found[0]["steps"] * FRAGMENTS / SYNC_EVERY
    return found


def _closer(url: str) -> subprocess.Popen[bytes]:
    code = "from gradientmail.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "closer", url],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


async def _held(url: str) -> dict[str, dict[int, int]]:
    """Return the steps that commits hold of each learner, by fragment; under "*": rounds."""
    run = await open_run(open_store(url, clock=SystemClock(), rng=system_random()))
    held: dict[str, dict[int, int]] = {"*": {0: 0}}
    for fragment in range(FRAGMENTS):
        number = 1
        while (version := await run.version(fragment, number)) and version.record:
            held["*"][0] += 1
            for one in version.record.participants:
                of = held.setdefault(one.learner, {})
                of[fragment] = of.get(fragment, 0) + one.steps
            number += 1
    return held


# -- in a process of its own ----------------------------------------------------------------


def model() -> nn.Module:
    """Return eight equal layers."""
    return nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))


def trained(url: str, name: str, step_s: float, seconds: float) -> dict[str, Any]:
    """Train alone, in the fleet, and alone again; return speeds in steps a second."""
    torch.set_num_threads(1)
    own = model()

    def step() -> None:
        time.sleep(step_s)
        with torch.no_grad():
            for parameter in own.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=1e-3)

    def alone() -> float:
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds / 4:
            step()
            steps += 1
        return steps / (time.perf_counter() - began)

    with gm.Learner(url, own, name=name) as learner:
        Path(f"{url}.ready-{name}").touch()
        while not Path(url).with_name("go").exists():
            time.sleep(0.01)
        speeds = [alone()]
        cpu, began = time.process_time(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            step()
            learner.step(tokens=1)
        took = time.perf_counter() - began
        cpu = time.process_time() - cpu
        steps = learner.progress.steps
        learner.request_stop()
    speeds.append(alone())
    return {
        "name": name,
        "steps": steps,
        "rate": steps / took,
        "alone": sum(speeds) / len(speeds),
        "cpu_s": cpu,
    }
