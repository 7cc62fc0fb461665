"""``scripts/simulate``: many seeds, or one in full."""

import argparse
import asyncio
import logging
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial

import torch

from gradientmail.simulation.checking import Verdict, judged_seed, shrunk, verdict_on
from gradientmail.simulation.families import FAMILIES
from gradientmail.simulation.kills import every_death
from gradientmail.simulation.sightings import EXPECTED
from gradientmail.simulation.world import run_world

CONFIDENCE = 3.0
"""With no failure in N worlds, the rate of failures is below 3/N at 95 %."""


def main() -> int:
    """Run as asked; the exit status is 1 when something was wrong."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--family", choices=FAMILIES, default="any", help="kind of worlds")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seed", type=int, help="run this one, with its log")
    parser.add_argument("--shrink", action="store_true", help="with --seed: make it smaller")
    parser.add_argument("--kills", action="store_true", help="every single kill of the base")
    args = parser.parse_args()
    if args.kills:
        return _kills()
    if args.seed is not None:
        return _one(args.seed, args.family, shrink=args.shrink)
    return _many(range(args.start, args.start + args.seeds), args.family, args.jobs)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# -- many seeds -----------------------------------------------------------------------------


def _many(seeds: range, family: str, jobs: int) -> int:
    seen: Counter[str] = Counter()
    wrong = operations = commits = 0
    virtual_s = 0.0
    for verdict in _verdicts(seeds, family, jobs):
        operations, commits = operations + verdict.operations, commits + verdict.commits
        virtual_s += verdict.virtual_s
        seen.update(set(verdict.seen))
        if verdict.wrong:
            wrong += 1
            again = f"scripts/simulate --family {family} --seed {verdict.seed}"
            _say(f"seed {verdict.seed} is wrong: {again}")
            for what in verdict.wrong[:5]:
                _say(f"    {what}")
    _say(
        f"{len(seeds)} seeds, {operations} operations, {commits} commits, "
        f"{virtual_s / 3600:.1f} simulated hours: {wrong} wrong"
        + ("" if wrong else f"; failure rate below {CONFIDENCE / len(seeds):.2g} (3/N)")
    )
    for what in EXPECTED:
        _say(f"{seen[what]:8d}  {what}" + ("" if seen[what] else "  <-- NEVER SEEN"))
    never = any(not seen[what] for what in EXPECTED) and family == "any"
    return int(wrong > 0 or never)


def _verdicts(seeds: range, family: str, jobs: int) -> Iterator[Verdict]:
    _quiet()
    judge = partial(judged_seed, family=family)
    if jobs == 1:
        yield from map(judge, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_quiet) as pool:
        yield from pool.imap(judge, seeds, chunksize=4)


def _quiet() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)


def _kills() -> int:
    _quiet()
    count = wrong = 0
    for death, verdict in every_death():
        count += 1
        if verdict.wrong:
            wrong += 1
            _say(f"{death}: {verdict.wrong[0]}")
    _say(f"{count} single kills: {wrong} wrong")
    return int(wrong > 0)


# -- one seed -------------------------------------------------------------------------------


def _one(seed: int, family: str, *, shrink: bool) -> int:
    scenario = FAMILIES[family](seed)
    if shrink:
        _quiet()
        scenario = shrunk(scenario)
        logging.disable(logging.NOTSET)
    _say(f"{scenario}")
    sayings = _Sayings()
    outcome = run_world(scenario)
    entries = [
        *((event.at, f"{event.process:14s} {' '.join(event[2:])}") for event in outcome.events),
        *(
            (change.at, f"{change.process:14s} -> {change.operation} {change.key}")
            for change in outcome.mutations
        ),
        *sayings.lines,
    ]
    for at, line in sorted(entries, key=lambda entry: entry[0]):
        _say(f"{at:10.3f} {line}")
    verdict = verdict_on(outcome)
    for what, count in sorted(verdict.seen.items()):
        _say(f"{count:8d}  {what}")
    for what in verdict.wrong:
        _say(f"WRONG: {what}")
    _say(f"log {verdict.digest}")
    return int(bool(verdict.wrong))


class _Sayings(logging.Handler):
    """What processes log, by virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []
        log = logging.getLogger("gradientmail")
        log.addHandler(self)
        log.setLevel(logging.DEBUG)
        log.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        at = asyncio.get_running_loop().time()
        speaker = getattr(record, "closer", getattr(record, "learner", ""))
        self.lines.append((at, f"{speaker:14s} says: {record.getMessage()}"))


if __name__ == "__main__":
    sys.exit(main())
