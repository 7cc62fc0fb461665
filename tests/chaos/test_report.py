"""The report says what was wrong, and how to see it again."""

import io
import shlex

from rich.console import Console

from gradientmail.chaos.__main__ import _parser
from gradientmail.chaos.campaign import Baseline, Results
from gradientmail.chaos.judging import Verdict
from gradientmail.chaos.noise import Noise
from gradientmail.chaos.recovery import Recoveries
from gradientmail.chaos.report import as_json, rendered, replay


def verdict(
    loss: float | None = 0.5, *wrong: str, seconds: tuple[float, ...] = (1.0, 7.0)
) -> Verdict:
    return Verdict(
        scenario="kills",
        seed=3,
        url="run",
        rounds=80,
        derived=80,
        loss=loss,
        recoveries=Recoveries(faults=4, seconds=[*seconds]),
        did=("killed ann",),
        wrong=wrong,
        seconds=12.0,
        start_s=1.0,
    )


def results(*played: Verdict, wrong: tuple[str, ...] = ()) -> Results:
    noise = Noise((0.49, 0.50, 0.51))
    baseline = Baseline(noise, promised_s=8.0, seconds=5.0, wrong=wrong)
    return Results({"file": baseline}, [("file", one) for one in played], {"wire": "no weed"})


def text(found: Results) -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(rendered(found, 80))
    return console.file.getvalue()


def test_a_sound_campaign_is_a_table() -> None:
    found = results(verdict(), verdict(0.4))
    assert found.sound
    row = next(line for line in text(found).splitlines() if line.startswith("kills"))
    expected = "kills file 2 160 8 0.5000 0.6146 4.00 s 7.00 s 7.00 s 8.0 s 0 0"
    assert " ".join(row.split()) == expected
    assert "skipped wire: no weed" in text(found)


def test_whatever_is_wrong_comes_with_the_command_to_repeat_it() -> None:
    found = results(verdict(0.5, "commits/1: damaged"), verdict(0.7), verdict(None))
    assert not found.sound
    assert "wrong: commits/1: damaged" in text(found)
    assert "wrong: its loss is 0.7000; undisturbed twins come to 0.5000" in text(found)
    again = "scripts/chaos --scenario kills --seed 3 --rounds 80 --store file"
    assert text(found).count(f"again: {again}") == 2
    runs = as_json(found, 80)["runs"]
    assert [bool(run["wrong"]) for run in runs] == [True, True, False]
    assert {run["replay"] for run in runs} == {again}


def test_a_recovery_over_t_is_wrong() -> None:
    found = results(verdict(seconds=(1.0, 9.0)), verdict())
    assert not found.sound
    row = next(line for line in text(found).splitlines() if line.startswith("kills"))
    assert " ".join(row.split()).endswith("8.0 s 1 1")
    assert "wrong: a round closed 9.0 s after a fault, T being 8.0 s" in text(found)


def test_a_twin_that_is_wrong_is_wrong() -> None:
    found = results(wrong=("no round was closed",))
    assert not found.sound
    assert "an undisturbed twin on file: no round was closed" in text(found)


def test_a_replay_is_what_the_driver_takes() -> None:
    words = shlex.split(replay(verdict(), "s3://a bucket/x", 80))[1:]
    asked = _parser().parse_args(words)
    assert (asked.scenario, asked.seed, asked.store) == (["kills"], 3, "s3://a bucket/x")
