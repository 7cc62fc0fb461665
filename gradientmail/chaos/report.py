"""What a campaign found, for people and for programs."""

import shlex
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradientmail.chaos.campaign import Results
from gradientmail.chaos.judging import Verdict
from gradientmail.chaos.recovery import Spread

COLUMNS = (
    "runs",
    "rounds",
    "faults",
    "loss",
    "limit",
    "p50",
    "p99",
    "max",
    "T",
    "over T",
    "wrong",
)


def replay(verdict: Verdict, store: str, rounds: int) -> str:
    """Return the command that does the same to another run; what processes do meanwhile differs.

    >>> replay(verdict, "file", 80)
    'scripts/chaos --scenario kills --seed 3 --rounds 80 --store file'
    """
    words = ["--scenario", verdict.scenario, "--seed", str(verdict.seed), "--rounds", str(rounds)]
    return shlex.join(["scripts/chaos", *words, "--store", store])


def as_json(results: Results, rounds: int) -> dict[str, Any]:
    """Return all of ``results``, as JSON values."""
    return {
        "sound": results.sound,
        "baselines": {
            store: {
                "promised_s": baseline.promised_s,
                "seconds": baseline.seconds,
                "losses": list(baseline.noise.losses) if baseline.noise else [],
                "wrong": list(baseline.wrong),
            }
            for store, baseline in results.baselines.items()
        },
        "runs": [
            {
                "scenario": verdict.scenario,
                "store": store,
                "seed": verdict.seed,
                "rounds": verdict.rounds,
                "derived": verdict.derived,
                "loss": verdict.loss,
                "faults": list(verdict.did),
                "recovery_s": verdict.recoveries.seconds,
                "seconds": verdict.seconds,
                "wrong": results.wrong(store, verdict),
                "replay": replay(verdict, store, rounds),
            }
            for store, verdict in results.played
        ],
        "skipped": results.skipped,
    }


def rendered(results: Results, rounds: int) -> RenderableType:
    """Return a table, a line a scenario, and the command to repeat whatever was wrong."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("scenario", no_wrap=True)
    table.add_column("store", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    stores = dict.fromkeys((v.scenario, store) for store, v in results.played)
    for scenario, store in stores:
        runs = [v for s, v in results.played if (v.scenario, s) == (scenario, store)]
        table.add_row(scenario, store, *_row(results, store, runs))
    skipped = [Text(f"skipped {name}: {why}", "yellow") for name, why in results.skipped.items()]
    wrong = [
        Text(f"wrong: {line}\n    again: {replay(verdict, store, rounds)}", "red")
        for store, verdict in results.played
        for line in results.wrong(store, verdict)
    ]
    twins = [
        Text(f"wrong: an undisturbed twin on {store}: {line}", "red")
        for store, baseline in results.baselines.items()
        for line in baseline.wrong
    ]
    return Group(table, *skipped, *twins, *wrong)


def _row(results: Results, store: str, runs: list[Verdict]) -> list[str]:
    baseline = results.baselines[store]
    losses = [run.loss for run in runs if run.loss is not None]
    seconds = [second for run in runs for second in run.recoveries.seconds]
    spread = Spread.of(seconds)
    recovery = (spread.p50_s, spread.p99_s, spread.max_s) if spread else ()
    return [
        str(len(runs)),
        str(sum(run.rounds for run in runs)),
        str(sum(run.recoveries.faults for run in runs)),
        f"{max(losses):.4f}" if losses else "",
        f"{baseline.noise.limit:.4f}" if baseline.noise else "",
        *(f"{second:.2f} s" for second in recovery or ()),
        *([] if recovery else ["", "", ""]),
        f"{baseline.promised_s:.1f} s",
        str(sum(second > baseline.promised_s for second in seconds)),
        str(sum(bool(results.wrong(store, run)) for run in runs)),
    ]
