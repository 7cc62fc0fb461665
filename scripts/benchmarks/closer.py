"""Closing a round: from contributions in files to the next version in files.

The floor reads the contributions and writes parameters and momentum, through one buffer of 1 MiB,
and nothing else. What is written is new files, as a closer's are; all lie in the page cache. Each
closing reads the present version too, decodes, checks that all is finite, merges, sums norms and
the cosine, takes an outer step (Nesterov), and hashes what it writes.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.frame import (
    ChildError,
    Figure,
    Options,
    Result,
    Samples,
    Skipped,
    at_least,
    at_most,
    compared,
    in_child,
    interleaved,
    peak_memory,
    ratio,
)
from benchmarks.peers import GRADIENTMAIL_002, PeerError, python_of
from gradientmail.algorithm import DELTA, Algorithm, algorithm_of
from gradientmail.algorithms.aggregator import PARAMS, Counters
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.closer.aggregation import OUTER, Files, aggregate, roles
from gradientmail.closer.intake import Accepted
from gradientmail.codecs import native
from gradientmail.codecs.layout import CHUNK, FragmentLayout, chunks, layout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import FileSource, FileTarget, PayloadReader, PayloadWriter
from gradientmail.config import RunSettings

MERGES = {"mean": "weighted-mean", "radial": "radial-directional-mean"}
TARGETS = {"mean": at_most(1.5), "radial": at_most(2.2)}
BUFFER_BYTES = 1 << 20
MEMORY_MB = at_most(32)


@dataclass(frozen=True)
class Case:
    """A round to close, in files."""

    algorithm: Algorithm
    layout: FragmentLayout
    accepted: Sequence[Accepted]
    present: Files
    target: dict[str, Path]

    def close(self) -> None:
        """Close it."""
        self._drop_what_was_written()
        aggregate(self.algorithm, self.layout, self.accepted, self.present, self.target)

    def read_and_write(self) -> None:
        """Do what any closer has to, and nothing else."""
        self._drop_what_was_written()
        buffer = memoryview(bytearray(BUFFER_BYTES))
        for one in self.accepted:
            _read_all(one.path, buffer)
        for path in self.target.values():
            _write_all(path, buffer, (self.layout.numel * 4))

    def _drop_what_was_written(self) -> None:
        for path in self.target.values():
            path.unlink(missing_ok=True)


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    torch.set_num_threads(1)
    native.warm_up()
    million = 1 << 20
    sizes = {"tiny": [million // 4], "quick": [4 * million], "full": [16 * million, 64 * million]}
    with tempfile.TemporaryDirectory(dir=_where()) as folder:
        for numel in sizes[options.size]:
            yield from _by_merge(Path(folder), numel, options)
            yield from _by_count(Path(folder), numel, options)
            yield from _memory(numel, options)
    if options.peer:
        yield from _peer(options)


def _by_merge(folder: Path, numel: int, options: Options) -> Iterator[Result]:
    """Eight contributions by either rule, in several precisions."""
    precisions = {"tiny": ["I8"], "quick": ["I8", "NF4"]}.get(
        options.size, ["I8", "I4", "NF4", "F4", "F8_E4M3", "F32"]
    )
    for precision in precisions:
        cases = {name: make(folder, numel, 8, precision, merge) for name, merge in MERGES.items()}
        found = measured(cases, options)
        for name in cases:
            what = f"8 x {_size(numel)} {precision}, {name}"
            target = TARGETS[name] if precision == "I8" else None
            yield compared(
                what,
                ratio(found[name], found["floor"], "cpu"),
                "x the floor (CPU)",
                found[name],
                target=target,
                note=f"floor {found['floor'].cpu_s:.2f} CPU s",
            )
            yield compared(
                what, ratio(found[name], found["floor"]), "x the floor (wall)", found[name]
            )


def _by_count(folder: Path, numel: int, options: Options) -> Iterator[Result]:
    """CPU seconds by the number of contributions: linear, as the floor, which rises less."""
    counts = {"tiny": [1, 2], "quick": [1, 8]}.get(options.size, [1, 2, 4, 16, 32])
    for count in counts:
        cases = {name: make(folder, numel, count, "I8", merge) for name, merge in MERGES.items()}
        found = measured(cases, options)
        for name in cases:
            yield compared(
                f"{count} x {_size(numel)} I8, {name}",
                ratio(found[name], found["floor"], "cpu"),
                "x the floor (CPU)",
                found[name],
            )


def _memory(numel: int, options: Options) -> Iterator[Result]:
    """Peak above start, in a process of its own whose kernels are loaded."""
    for count in {"tiny": [1], "quick": [8]}.get(options.size, [8, 32]):
        for precision in ("I8",) if options.size != "full" else ("I8", "F32"):
            if count * numel * 4 > 4 << 30 and precision == "F32":
                continue
            found = in_child("benchmarks.closer:memory_of", numel, count, precision)
            yield Figure(
                what=f"memory above start, {count} x {_size(numel)} {precision}",
                value=found["closing"] / 1e6,
                unit="MB",
                target=MEMORY_MB,
                note=f"loading the kernels took {found['loading'] / 1e6:.0f} MB before",
            )


def memory_of(numel: int, count: int, precision: str) -> dict[str, int]:
    """Return bytes above start: of loading the kernels, and of closing one round."""
    with tempfile.TemporaryDirectory(dir=_where()) as folder:
        case = make(Path(folder), numel, count, precision, MERGES["radial"])
        small = make(Path(folder) / "small", 1 << 18, 1, precision, MERGES["radial"])
        with peak_memory() as loading:
            native.warm_up()
        small.close()
        with peak_memory() as closing:
            case.close()
    return {"loading": loading.above_start_bytes, "closing": closing.above_start_bytes}


def measured(cases: dict[str, Case], options: Options) -> dict[str, Samples]:
    """Time the floor and each case in turn."""
    first = next(iter(cases.values()))
    work: dict[str, Callable[[], object]] = {"floor": first.read_and_write}
    work |= {name: case.close for name, case in cases.items()}
    return interleaved(work, times=options.repetitions)


# -- rounds in files --------------------------------------------------------------------------


def make(folder: Path, numel: int, count: int, precision: str, merge: str) -> Case:
    """Write a round of ``count`` contributions to a fragment of ``numel`` elements."""
    folder.mkdir(exist_ok=True)
    algorithm = algorithm_of(RunSettings(uplink=precision, merge=merge, algorithm="diloco"))
    fragment = fragment_of(numel)
    accepted = [_contribution(folder, algorithm, fragment, index) for index in range(count)]
    formats = roles(algorithm, fragment.numel)
    present = {role: folder / f"present.{role}.{numel}" for role in formats}
    for role, form in formats.items():
        if not present[role].exists():
            _write(present[role], form, seed=100)
    return Case(
        algorithm=algorithm,
        layout=fragment,
        accepted=accepted,
        present=Files(params=present[PARAMS], outer=present[OUTER], version=1, outer_steps=1),
        target={role: folder / f"next.{role}" for role in formats},
    )


def fragment_of(numel: int) -> FragmentLayout:
    """Return sixteen matrices and as many vectors, of ``numel`` elements in all."""
    each = numel // 16
    tensors = [(f"layer.{i}.weight", each - 1024) for i in range(16)]
    return layout([*tensors, *((f"layer.{i}.bias", 1024) for i in range(16))])


def _contribution(
    folder: Path, algorithm: Algorithm, fragment: FragmentLayout, index: int
) -> Accepted:
    form = algorithm.delta_format(fragment.numel)
    path = folder / f"mail.{fragment.numel}.{form.sections[DELTA]}.{index}"
    if not path.exists():
        _write(path, form, seed=index)
    sums = SquareSums(fragment)
    with FileSource(path) as source:
        reader = PayloadReader(form, source)
        for start, stop in chunks(0, fragment.numel):
            sums.add(start, reader.read(DELTA, start, stop))
    record: Any = SimpleNamespace(base=1)
    counters = Counters(steps=10, tokens=1000 + index, norms=sums.norms())
    return Accepted(key=path.name, record=record, counters=counters, path=path, digest="")


def _write(path: Path, form: PayloadFormat, seed: int) -> None:
    """Fill every section with normal numbers: one chunk of them again and again."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(CHUNK, generator=generator) * 1e-3
    with FileTarget(path) as target:
        writer = PayloadWriter(form, target)
        for section in form.sections:
            for start, stop in chunks(0, form.numel):
                writer.write(section, start, numbers[: stop - start].clone())


def _read_all(path: Path, buffer: memoryview) -> None:
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _write_all(path: Path, buffer: memoryview, size_bytes: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    for offset in range(0, size_bytes, len(buffer)):
        os.pwrite(fd, buffer[: size_bytes - offset], offset)
    os.close(fd)


def _where() -> str | None:
    """Return a folder on a disk that is large enough; the system's own else."""
    return os.environ.get("BENCH_DIR")


def _size(numel: int) -> str:
    return f"{numel >> 20}M" if numel >= 1 << 20 else f"{numel >> 10}K"


# -- peers --------------------------------------------------------------------------------------


def _peer(options: Options) -> Iterator[Result]:
    """Close with the peer's aggregator, which takes and returns bytes: no files are read."""
    numel = 64 << 20 if options.size == "full" else 1 << 20
    for precision, bar in (("F8_E4M3", 15), ("F4", 20)):
        what = f"8 x {_size(numel)} {precision}, radial"
        try:
            python = python_of(GRADIENTMAIL_002)
            found = in_child(
                "benchmarks.codec_peers:close_002", numel, 8, precision, python=python
            )
        except (PeerError, ChildError) as error:
            yield Skipped(what=what, reason=str(error).strip().splitlines()[-1])
            continue
        ours = in_child("benchmarks.closer:cpu_of", numel, 8, precision)
        yield from _beside(f"{what}: CPU seconds", ours["cpu_s"], found["cpu_s"], "CPU s", bar)
        megabytes = ours["peak_bytes"] / 1e6, found["peak_bytes"] / 1e6
        yield from _beside(f"{what}: memory above start", *megabytes, "MB", 70)


def _beside(what: str, ours: float, theirs: float, unit: str, bar: float) -> Iterator[Figure]:
    for of, value in (("ours", ours), (GRADIENTMAIL_002.name, theirs)):
        yield Figure(
            what=what,
            value=value / max(ours, 1e-3),
            unit="x ours",
            target=None if of == "ours" else at_least(bar),
            of=of,
            note=f"{value:.2f} {unit}",
        )


def cpu_of(numel: int, count: int, precision: str) -> dict[str, float]:
    """Return CPU seconds, the median of three, and peak bytes above start of closing a round."""
    torch.set_num_threads(1)
    native.warm_up()
    with tempfile.TemporaryDirectory(dir=_where()) as folder:
        make(Path(folder) / "small", 1 << 18, 1, precision, MERGES["radial"]).close()
        case = make(Path(folder), numel, count, precision, MERGES["radial"])
        with peak_memory() as memory:
            found = interleaved({"ours": case.close}, times=3, warm=0)
    return {"cpu_s": found["ours"].cpu_s, "peak_bytes": memory.above_start_bytes}
