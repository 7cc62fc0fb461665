"""``scripts/chaos``: break real runs in every way listed, and judge what is left of them."""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import torch
from rich.console import Console

from gradientmail.chaos.campaign import FILE, Campaign
from gradientmail.chaos.report import as_json, rendered
from gradientmail.chaos.scenarios import SCENARIOS
from gradientmail.clock import Clock, SystemClock

WIDTH = 110


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as asked, or until Ctrl-C; the exit status is 1 when something was wrong."""
    args = _parser().parse_args(arguments)
    if args.twins < 1:
        _parser().error("--twins: at least 1, or there is no T")
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    console = Console(highlight=False, width=WIDTH)
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    clock = SystemClock()
    with tempfile.TemporaryDirectory(
        prefix="gradientmail-chaos-", ignore_cleanup_errors=True
    ) as home:
        campaign = Campaign(
            Path(args.home or home), args.store, args.rounds, args.twins, clock, notes.print
        )
        seeds = _seeds(args.seed, args.repeats, args.seconds, clock)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's "&" ignores it
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        with campaign, contextlib.suppress(KeyboardInterrupt):  # what was played so far is told
            asyncio.run(campaign.play(args.scenario or [*SCENARIOS], seeds))
        results = campaign.results
    if args.json:
        sys.stdout.write(json.dumps(as_json(results, args.rounds), indent=1) + "\n")
    else:
        console.print(rendered(results, args.rounds))
    return int(not results.sound)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:14s} {scenario.what}" for name, scenario in SCENARIOS.items()),
    )
    parser.add_argument(
        "--scenario", action="append", choices=SCENARIOS, help="only this one; repeatable"
    )
    parser.add_argument("--seed", type=int, default=0, help="what is drawn, from this one on")
    parser.add_argument("--repeats", type=int, default=1, help="how many seeds of each scenario")
    parser.add_argument("--seconds", type=float, help="as many seeds as begin within this time")
    parser.add_argument("--rounds", type=int, default=80, help="after which each run ends")
    parser.add_argument("--twins", type=int, default=6, help="undisturbed runs of each store")
    parser.add_argument("--store", default=FILE, help="file, s3 (a SeaweedFS it starts) or a URL")
    parser.add_argument("--home", help="keep all files and logs here, in a new directory")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


async def _seeds(
    first: int, repeats: int, seconds: float | None, clock: Clock
) -> AsyncIterator[int]:
    began, seed = clock.now(), first
    while clock.now() - began < seconds if seconds is not None else seed < first + repeats:
        yield seed
        seed += 1


if __name__ == "__main__":
    sys.exit(main())
