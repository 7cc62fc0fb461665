"""``scripts/simulate``: many seeds, every kill, random triple kills, or one seed in full."""

import argparse
import asyncio
import logging
import sys
from functools import partial
from itertools import chain

import torch

from gradientmail.simulation.checking import judged_seed, shrunk, verdict_on
from gradientmail.simulation.families import FAMILIES
from gradientmail.simulation.kills import BASES, Trial, every_death, triple_deaths
from gradientmail.simulation.pool import mapped, quiet
from gradientmail.simulation.report import Report
from gradientmail.simulation.sightings import EXPECTED
from gradientmail.simulation.world import run_world


def main() -> int:
    """Run as asked; the exit status is 1 when something was wrong."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--family", choices=FAMILIES, default="any", help="kind of worlds")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--seed", type=int, help="run this one, with its log")
    parser.add_argument("--shrink", action="store_true", help="make failing seeds smaller")
    parser.add_argument("--kills", action="store_true", help="every single kill of two scenarios")
    parser.add_argument("--triples", type=int, help="so many random triple kills of each of them")
    args = parser.parse_args()
    if args.kills or args.triples:
        singles = chain(*map(every_death, BASES)) if args.kills else ()
        triples = chain(*(triple_deaths(base, args.triples or 0) for base in BASES))
        return _deaths([*singles, *triples], args.jobs)
    if args.seed is not None:
        return _one(args.seed, args.family, shrink=args.shrink)
    seeds = range(args.start, args.start + args.seeds)
    return _many(seeds, args.family, args.jobs, shrink=args.shrink)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# -- many worlds ----------------------------------------------------------------------------


def _many(seeds: range, family: str, jobs: int, *, shrink: bool) -> int:
    report = Report()
    for verdict in mapped(partial(judged_seed, family=family), seeds, jobs):
        report.add(verdict)
        if verdict.wrong:
            again = f"scripts/simulate --family {family} --seed {verdict.seed}"
            _say(f"seed {verdict.seed} is wrong: {again} --shrink")
            for what in verdict.wrong[:5]:
                _say(f"    {what}")
            if shrink:
                _say(f"    the smallest world of it: {shrunk(FAMILIES[family](verdict.seed))}")
    _say(report.summary("seeds"))
    for what in EXPECTED:
        seen = report.seen[what]
        _say(f"{seen:8d}  {what}" + ("" if seen else "  <-- NEVER SEEN"))
    never = any(not report.seen[what] for what in EXPECTED) and family == "any"
    return int(report.wrong > 0 or never)


def _deaths(trials: list[Trial], jobs: int) -> int:
    report = Report()
    for trial, verdict in zip(trials, mapped(Trial.judged, trials, jobs), strict=True):
        report.add(verdict)
        if verdict.wrong:
            _say(f"{trial}: {verdict.wrong[0]}")
    _say(report.summary("kills"))
    return int(report.wrong > 0)


# -- one seed -------------------------------------------------------------------------------


def _one(seed: int, family: str, *, shrink: bool) -> int:
    scenario = FAMILIES[family](seed)
    if shrink:
        quiet()
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
