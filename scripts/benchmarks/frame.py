"""What a benchmark is made of: what to measure, how often, and what it must reach.

Absolute figures mean nothing on shared hardware. A figure is a ratio within one run, the median of
at least five repetitions in which what is compared takes turns, with its spread, and CPU seconds
beside wall seconds; or it is a count, which needs no repetition.
"""

import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

ROOT = Path(__file__).parents[2]
REPETITIONS = 5

Size = Literal["tiny", "quick", "full"]
"""How much to measure: all of it, a first look in seconds, or just enough to run every line."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run a benchmark.

    Attributes:
        size: How much to measure.
        peer: Measure the peers as well, where they can be set up.
    """

    size: Size = "full"
    peer: bool = False

    @property
    def repetitions(self) -> int:
        """Return how often to measure what has a spread."""
        return {"tiny": 1, "quick": 3, "full": REPETITIONS}[self.size]


class Target(msgspec.Struct, frozen=True):
    """What a figure must reach."""

    relation: Literal[">=", "<="]
    bound: float

    def met(self, value: float) -> bool:
        """Whether ``value`` reaches it."""
        return value >= self.bound if self.relation == ">=" else value <= self.bound

    def __str__(self) -> str:
        return f"{self.relation} {self.bound:g}"


def at_least(bound: float) -> Target:
    """Return the target of a figure that should be large."""
    return Target(">=", bound)


def at_most(bound: float) -> Target:
    """Return the target of a figure that should be small."""
    return Target("<=", bound)


class Figure(msgspec.Struct, frozen=True, kw_only=True, tag="figure"):
    """One line of a benchmark's table.

    Attributes:
        what: What was measured, in a few words: codec, size, client and server.
        value: A ratio within this run (its median), or a count.
        unit: What the value is: "of a copy", "x the floor", "requests", "%".
        low: Smallest value of all repetitions; None for a count.
        high: Largest.
        target: What it must reach; None where it is there to compare with.
        wall_s: Median of one repetition.
        cpu_s: The same in CPU seconds of the process, all threads.
        of: What was measured: ours, or a peer by its name.
        note: What a reader needs to know.
    """

    what: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    target: Target | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    of: str = "ours"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        return None if self.target is None else self.target.met(self.value)


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag="skipped"):
    """What could not be measured here, and why."""

    what: str
    reason: str


Result = Figure | Skipped


class Benchmark(Protocol):
    """A module of this package that measures something; its docstring says what."""

    __doc__: str

    @staticmethod
    def run(options: Options) -> Iterator[Result]:
        """Measure, and yield each result as it is known."""
        ...


# -- repetitions ----------------------------------------------------------------------------


@dataclass
class Samples:
    """What the repetitions of one case took, in their order."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        """Return the median of wall seconds."""
        return statistics.median(self.wall)

    @property
    def cpu_s(self) -> float:
        """Return the median of CPU seconds."""
        return statistics.median(self.cpu)


def interleaved(
    cases: Mapping[str, Callable[[], object]], *, times: int = REPETITIONS, warm: int = 1
) -> dict[str, Samples]:
    """Run all cases in turn, ``times`` times, after ``warm`` rounds that do not count.

    Example:
        >>> samples = interleaved({"copy": lambda: a.copy(), "encode": lambda: encode(a)})
        >>> ratio(samples["copy"], samples["encode"])
    """
    samples = {name: Samples() for name in cases}
    for repetition in range(-warm, times):
        for name, case in cases.items():
            wall, cpu = time.perf_counter(), time.process_time()
            case()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if repetition >= 0:
                samples[name].wall.append(wall)
                samples[name].cpu.append(cpu)
    return samples


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of two cases: its median over repetitions, its smallest and its largest."""

    median: float
    low: float
    high: float


def ratio(above: Samples, below: Samples, by: Literal["wall", "cpu"] = "wall") -> Ratio:
    """Return how often ``below`` fits into ``above``, repetition by repetition.

    ``ratio(copy, encode)`` is 0.6 where encoding runs at 0.6 times the speed of a copy.
    """
    pairs = zip(getattr(above, by), getattr(below, by), strict=True)
    ratios = [one / max(other, 1e-9) for one, other in pairs]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def compared(
    what: str,
    found: Ratio,
    unit: str,
    samples: Samples,
    *,
    target: Target | None = None,
    of: str = "ours",
    note: str = "",
) -> Figure:
    """Return the figure of a ratio, with the seconds of ``samples`` beside it."""
    return Figure(
        what=what,
        value=found.median,
        low=found.low,
        high=found.high,
        unit=unit,
        target=target,
        wall_s=samples.wall_s,
        cpu_s=samples.cpu_s,
        of=of,
        note=note,
    )


# -- memory, and processes of their own -----------------------------------------------------


@dataclass
class Memory:
    """Resident bytes at the start of a stretch, and their peak within it."""

    start_bytes: int = 0
    peak_bytes: int = 0

    @property
    def above_start_bytes(self) -> int:
        """Return how far the peak is above the start."""
        return max(0, self.peak_bytes - self.start_bytes)


@contextmanager
def peak_memory() -> Iterator[Memory]:
    """Measure the peak of this process's resident memory within the block (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    memory = Memory(start_bytes=_status("VmRSS"))
    yield memory
    memory.peak_bytes = _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def in_child(
    function: str,
    *arguments: Any,
    python: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 600.0,
) -> Any:
    """Call ``module:function`` with ``arguments`` in a process of its own; return what it returns.

    Arguments and result travel as JSON. ``python`` is another environment's interpreter; it finds
    the package ``benchmarks``, but not ``gradientmail`` of this checkout.

    Raises:
        ChildError: the process failed; the message has what it said last.
    """
    path = str(ROOT / "scripts") if python else f"{ROOT / 'scripts'}:{ROOT}"
    command = [str(python or sys.executable), "-m", "benchmarks.child", function]
    done = subprocess.run(
        [*command, json.dumps(arguments)],
        cwd=ROOT if python is None else ROOT / "scripts",
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise ChildError(f"{function} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.rpartition("\n=> ")[2])


class ChildError(RuntimeError):
    """A process that should have measured something failed."""


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each key over all rows."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}
