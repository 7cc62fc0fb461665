"""The command line of the benchmarks; see ``scripts/bench --help``."""

import argparse
import importlib
import subprocess
import sys
import time
from datetime import UTC, datetime

import msgspec

from benchmarks import report
from benchmarks.frame import ROOT, Benchmark, Figure, Options, Result, Skipped
from benchmarks.machine import code_digest, commit, this_machine
from benchmarks.report import Measured

NAMES = {
    "codec": "tensors to payload bytes and back, against a plain copy",
    "closer": "closing a round, against reading and writing what it must",
    "overhead": "a training loop with the session, against the bare loop",
    "requests": "operations and bytes of learners and closers",
    "rounds": "how many of the ideal rounds close over a slow store",
    "fleet": "three unequal learners, against the sum of their speeds",
    "store": "each store, against its client library alone",
    "scale": "a thousand learners, simulated",
    "train": "does it train: loss over bits of every way to exchange",
}

SPEED = [name for name in NAMES if name != "train"]
"""What ``all`` measures. Training takes hours and has a page of its own."""

USAGE = """
scripts/bench NAME     measure, print a table
scripts/bench quick    a first look at all of them in under two minutes, for a person to compare
scripts/bench all      measure what has no result of this code yet, write the tables in docs/
scripts/bench pages    only write them, from the results there are in build/bench
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    names = "\n".join(f"  {name:10} {about}" for name, about in NAMES.items())
    made = argparse.ArgumentParser(
        prog="scripts/bench",
        usage=USAGE,
        epilog=f"names:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("name", choices=[*NAMES, "all", "quick", "pages"], metavar="NAME")
    made.add_argument("--json", action="store_true", help="print JSON instead of a table")
    made.add_argument("--peer", action="store_true", help="also set up and measure the peers")
    made.add_argument("--size", choices=["tiny", "quick", "full"], default="full")
    made.add_argument("--fresh", action="store_true", help="all: measure what has a result, too")
    return made


def main() -> None:
    """Run what the command line asks for."""
    given = parser().parse_args()
    match given.name:
        case "all":
            measure_all(fresh=given.fresh, peer=given.peer)
        case "quick":
            for name in SPEED:
                _in_a_process(name, "--size", "quick")
        case "pages":
            write_pages()
        case name:
            measured = measure(name, Options(size=given.size, peer=given.peer))
            if given.json:
                print(msgspec.json.encode(measured).decode())
            else:
                report.show(measured)
                print(report.summary(measured))


def measure(name: str, options: Options) -> Measured:
    """Run one benchmark and keep what it finds."""
    began = time.monotonic()
    results = []
    for result in _benchmark(name).run(options):
        _tell(result)
        results.append(result)
    measured = Measured(
        name=name,
        size=options.size,
        peer=options.peer,
        commit=commit(),
        code=code_digest(),
        at=datetime.now(UTC).date().isoformat(),
        took_s=round(time.monotonic() - began, 1),
        machine=this_machine(),
        results=tuple(results),
    )
    if options.size != "tiny":
        report.keep(measured)
    return measured


def _benchmark(name: str) -> Benchmark:
    module: Benchmark = importlib.import_module(f"benchmarks.{name}")  # type: ignore[assignment]
    return module


def _tell(result: Result) -> None:
    """Show on standard error that something goes on."""
    match result:
        case Figure():
            found = f"{report.number(result.value)} {result.unit}"
            print(f"  {result.what} ({result.of}): {found}", file=sys.stderr, flush=True)
        case Skipped():
            print(f"  {result.what}: skipped, {result.reason}", file=sys.stderr, flush=True)


def measure_all(*, fresh: bool, peer: bool) -> None:
    """Measure what has no result of this code, each in a process of its own; write pages."""
    code = code_digest()
    for name in SPEED:
        found = report.kept(name)
        if not fresh and found and found.code == code and (found.peer or not peer):
            print(f"{name}: measured already, in {found.took_s:.0f} s", flush=True)
            continue
        _in_a_process(name, *(["--peer"] if peer else []))
    write_pages()


def _in_a_process(name: str, *flags: str) -> None:
    """Measure in a process of its own; one that fails does not keep the others from running."""
    print(f"\n== {name}: {NAMES[name]}", flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, *flags], cwd=ROOT, check=False
    )
    if done.returncode:
        print(f"{name} failed with status {done.returncode}", flush=True)


def write_pages() -> None:
    """Write the tables of the pages."""
    missing = report.write_pages()
    print(f"wrote {' and '.join(str(page.relative_to(ROOT)) for page in report.PAGES)}")
    if missing:
        print(f"without a result of {', '.join(missing)}: what stood there stays")


if __name__ == "__main__":
    main()
