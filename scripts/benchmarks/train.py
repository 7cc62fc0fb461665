"""Does it train? Ways to train one small GPT on real text, with equal tokens and the same seeds.

``training`` says what a cell is. Every cell is kept in build/bench/train as it ends, and is not
trained again while its settings stay the same: stop this at any time, it goes on where it was. A
full run ends by writing docs/results.md. ``python -m benchmarks.train --help`` trains some of it.
"""

import argparse
import hashlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec
import torch

from benchmarks import train_page, training
from benchmarks.frame import ROOT, Figure, Options, Result, Skipped, Target, at_least, at_most
from benchmarks.training import AllReduce, Alone, Common, Fleet, Start, Task, Trained, Way
from gradientmail.errors import SettingsError
from gradientmail.programs.source import library_source

RESULTS = ROOT / "build" / "bench" / "train"
SEEDS = (0, 1, 2)
SYNC_EVERY = 60
UNEQUAL = (1.0, 0.8, 0.5, 0.25)
TUNED = {"outer_lr": 0.5, "outer_settings": {"momentum": 0.5}}
"""The outer step that was best of those tried with another seed; docs/results.md has them all."""

WITHIN = 0.5
"""Percent above the loss of all-reduce that the bar allows."""
FEWER_BITS = 400.0
FOUR_BIT_COST = 0.05
"""Percent that a four-bit uplink may cost."""

BASELINE, AVERAGED, OUTER, FOUR_BITS = "all-reduce", "averaging", "diloco", "diloco-nf4"
BARRED = ("diloco-nf4-both", "streaming-nf4-both")
"""What has to be as good as all-reduce."""


def ways(sync_every: int) -> dict[str, Way]:
    """Return every row of the table by its name, in order of importance."""

    def fleet(preset: str, speeds: tuple[float, ...] = (), **settings: object) -> Fleet:
        chosen = {"sync_every": sync_every, **settings}
        return Fleet(preset=preset, settings=chosen, speeds=speeds)

    def diloco(**settings: object) -> Fleet:
        return fleet("diloco", **{**TUNED, **settings})

    in_four: dict[str, object] = {"fragments": 4, "plan": "bytes", **TUNED}
    both: dict[str, object] = {"uplink": "NF4", "downlink": "NF4"}
    radial: dict[str, object] = {**in_four, "merge": "radial-directional-mean"}
    uplinks = {
        f"diloco-{uplink.lower()}{'' if feedback else '-without'}": diloco(
            uplink=uplink, error_feedback=feedback
        )
        for uplink in ("NF4", "I8", "I2", "SPARSE")
        for feedback in (True, False)
    }
    return {
        BASELINE: AllReduce(),
        OUTER: diloco(),
        AVERAGED: fleet("local-sgd"),
        "diloco-nf4-both": diloco(**both),
        # Less often, since four fragments have a fifth more bytes than one: whole tiles.
        "streaming-nf4-both": fleet(
            "streaming-diloco", **in_four, **both, sync_every=sync_every * 5 // 4
        ),
        "streaming": fleet("streaming-diloco", **in_four),
        "decoupled": fleet("decoupled-diloco", **radial),
        # That mean is as long as its contributions, so this step is as long as the plain mean's.
        "decoupled-half": fleet("decoupled-diloco", **{**radial, "outer_lr": 0.25}),
        "decoupled-mean": fleet("decoupled-diloco", **in_four, merge="weighted-mean"),
        "alone": Alone(),
        "alone-share": Alone(share=True),
        "common": Common(),
        "diloco-paper": fleet("diloco", outer_lr=0.7, outer_settings={"momentum": 0.9}),
        **uplinks,
        "diloco-sign": diloco(uplink="SIGN"),
        "diloco-sparse-decay": diloco(uplink="SPARSE", error_feedback_decay=0.95),
        "diloco-i2-often": diloco(uplink="I2", downlink="I2", sync_every=sync_every // 2),
        "delayed-nesterov": Fleet(
            preset="diloco",
            settings={
                "sync_every": sync_every,
                "outer": "delayed-nesterov",
                "outer_lr": 0.5,
                "outer_settings": {"momentum": 0.5, "arrivals": 4},
                "local_steps": "dynamic",
                "grace_s": 0.0,
                "max_staleness": 8,
                "keep_versions": 16,
            },
            speeds=UNEQUAL,
            by_arrival=True,
        ),
        "decoupled-unequal": fleet("decoupled-diloco", UNEQUAL, **radial),
    }


TITLES = {
    BASELINE: "synchronous all-reduce, each step",
    OUTER: "DiLoCo",
    AVERAGED: "plain averaging of parameters",
    "diloco-nf4-both": "DiLoCo, NF4 up and down",
    "streaming": "Streaming DiLoCo, E2M1 up",
    "streaming-nf4-both": "Streaming DiLoCo, NF4 up and down, every 75 steps",
    "decoupled": "Decoupled DiLoCo, radial-directional mean, outer rate .5",
    "decoupled-half": "Decoupled DiLoCo, radial-directional mean, outer rate .25 (the preset)",
    "decoupled-mean": "Decoupled DiLoCo, plain mean",
    "alone": "one learner alone, all tokens",
    "diloco-paper": "DiLoCo, outer momentum .9 as in the paper",
    "diloco-i2-often": "DiLoCo, I2 up and down, twice as often",
    "alone-share": "one learner alone, its own quarter of the tokens",
    "common": "the common start",
    "diloco-nf4": "DiLoCo, NF4 up",
    "diloco-nf4-without": "DiLoCo, NF4 up, no feedback",
    "diloco-i8": "DiLoCo, I8 up",
    "diloco-i8-without": "DiLoCo, I8 up, no feedback",
    "diloco-i2": "DiLoCo, I2 up",
    "diloco-i2-without": "DiLoCo, I2 up, no feedback",
    "diloco-sparse": "DiLoCo, sparse up, feedback without decay",
    "diloco-sparse-without": "DiLoCo, sparse up, no feedback",
    "diloco-sparse-decay": "DiLoCo, sparse up, feedback with decay .95",
    "diloco-sign": "DiLoCo, signs up",
    "decoupled-unequal": "Decoupled DiLoCo, outer rate .5, speeds 1, .8, .5, .25",
    "delayed-nesterov": "delayed Nesterov with DyLU, speeds 1, .8, .5, .25",
}


# -- cells ------------------------------------------------------------------------------------


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One row for one seed."""

    name: str
    seed: int
    settings: str
    loss: float
    up_bits: float
    down_bits: float
    tokens: int
    steps: int
    cpu_s: float


class Bench:
    """Trains the cells of one task, and keeps them."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self._folder = folder
        self._text = library_source()
        self._start: Start | None = None

    def kept(self, name: str, way: Way, seed: int) -> Cell | None:
        """Return a cell that was trained with these settings before."""
        try:
            cell = msgspec.json.decode(self._path(name, seed).read_bytes(), type=Cell)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        return cell if cell.settings == fingerprint(self.task, way) else None

    def cell(self, name: str, way: Way, seed: int) -> Cell:
        """Return a cell, trained now where none is kept.

        Raises:
            SettingsError: it asks for what is not built.
        """
        if kept := self.kept(name, way, seed):
            return kept
        if self._start is None or self._start.seed != seed:
            self._start = training.start_of(self.task, seed, self._text)
        trained: Trained = training.train(self._start, way)
        cell = Cell(name=name, seed=seed, settings=fingerprint(self.task, way), **asdict(trained))
        self._keep(cell)
        return cell

    def _keep(self, cell: Cell) -> None:
        path = self._path(cell.name, cell.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(cell))
        unfinished.replace(path)

    def _path(self, name: str, seed: int) -> Path:
        return self._folder / f"{name}.{seed}.json"


def fingerprint(task: Task, way: Way) -> str:
    """Return what a cell must have been trained with to be of this table.

    Raises:
        SettingsError: it asks for what is not built.
    """
    made_with: object = way
    if isinstance(way, Fleet):
        settings = msgspec.json.encode(training.settings_of(way, task), order="sorted")
        made_with = (way.speeds, way.by_arrival, settings)
    return hashlib.sha256(repr((task, made_with)).encode()).hexdigest()[:16]


def seeds_of(cells: Sequence[Cell]) -> dict[int, Cell]:
    """Return cells by seed."""
    return {cell.seed: cell for cell in cells}


# -- figures ----------------------------------------------------------------------------------


def run(options: Options) -> Iterator[Result]:
    """Train what is not kept yet, and yield each row, then the bars."""
    torch.set_num_threads(1)
    bench, rows, seeds = _sized(options)
    found: dict[str, list[Cell]] = {}
    skipped: dict[str, str] = {}
    for seed in seeds:
        for name, way in rows.items():
            if name in skipped:
                continue
            try:
                found.setdefault(name, []).append(bench.cell(name, way, seed))
            except (SettingsError, TimeoutError) as exc:
                skipped[name] = str(exc) or "it came to no end"
                found.pop(name, None)
    yield from (_row(name, cells) for name, cells in found.items())
    yield from (Skipped(what=TITLES[name], reason=why) for name, why in skipped.items())
    yield from bars(found)
    if options.size == "full":
        train_page.write(bench.task, TITLES, found, tuple(bars(found)))


def _sized(options: Options) -> tuple[Bench, Mapping[str, Way], Sequence[int]]:
    if options.size == "full":
        return Bench(Task(), RESULTS), ways(SYNC_EVERY), SEEDS
    steps = {"quick": 40, "tiny": 4}[options.size]
    task = Task(common_steps=steps, steps=2 * steps, held_out_windows=64)
    some = {name: way for name, way in ways(steps).items() if name in (BASELINE, *BARRED)}
    return Bench(task, RESULTS / options.size), some, (0,)


def _row(name: str, cells: Sequence[Cell]) -> Figure:
    losses = [cell.loss for cell in cells]
    bits = statistics.mean(cell.up_bits + cell.down_bits for cell in cells)
    return Figure(
        what=TITLES[name],
        value=statistics.mean(losses),
        unit="nats per byte",
        low=min(losses),
        high=max(losses),
        cpu_s=statistics.mean(cell.cpu_s for cell in cells),
        note=f"{bits:.4g} bits per parameter, {len(cells)} seeds",
    )


def bars(found: Mapping[str, Sequence[Cell]]) -> Iterator[Figure]:
    """Yield what must be reached, of what has been trained."""
    for name in BARRED:
        bar = at_most(WITHIN)
        yield from _worse(found, name, BASELINE, bar, f"{TITLES[name]} above all-reduce")
        if {name, BASELINE} <= found.keys():
            yield Figure(
                what=f"bits of all-reduce to those of {TITLES[name]}",
                value=_bits(found[BASELINE]) / _bits(found[name]),
                unit="times",
                target=at_least(FEWER_BITS),
            )
    gain = at_least(0.0)
    yield from _worse(found, AVERAGED, OUTER, gain, "plain averaging above an outer momentum step")
    bar = at_most(FOUR_BIT_COST)
    yield from _worse(found, FOUR_BITS, OUTER, bar, "a four-bit uplink above a float32 one")


def _worse(
    found: Mapping[str, Sequence[Cell]], name: str, than: str, target: Target, what: str
) -> Iterator[Figure]:
    """Yield how far the loss of ``name`` is above that of ``than``, seed by seed."""
    if not {name, than} <= found.keys():
        return
    ours, theirs = seeds_of(found[name]), seeds_of(found[than])
    both = sorted(ours.keys() & theirs.keys())
    above = [100.0 * (ours[seed].loss / theirs[seed].loss - 1.0) for seed in both]
    value = statistics.mean(above)
    yield Figure(what=what, value=value, low=min(above), high=max(above), unit="%", target=target)


def _bits(cells: Sequence[Cell]) -> float:
    return statistics.mean(cell.up_bits + cell.down_bits for cell in cells)


# -- by hand ----------------------------------------------------------------------------------


def main() -> None:
    """Train some cells of the full table, or write the page from what is kept."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.train", description=__doc__)
    made.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    made.add_argument("--only", nargs="*", choices=list(TITLES), help="rows; all of them if none")
    made.add_argument("--page", action="store_true", help="train nothing, write docs/results.md")
    given = made.parse_args()
    torch.set_num_threads(1)
    bench, rows, _ = _sized(Options())
    if given.page:
        found = {
            name: cells
            for name, way in rows.items()
            if (cells := [cell for s in SEEDS if (cell := bench.kept(name, way, s))])
        }
        train_page.write(bench.task, TITLES, found, tuple(bars(found)))
        return
    for seed in given.seeds:
        for name in given.only or rows:
            try:
                cell = bench.cell(name, rows[name], seed)
            except (SettingsError, TimeoutError) as exc:
                print(f"{name}: skipped, {exc}", file=sys.stderr, flush=True)
            else:
                print(f"{name} {seed}: {cell.loss:.4f}, {cell.cpu_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
