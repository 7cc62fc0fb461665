"""A closer's process ends when it should, with its lease given back."""

import signal
from pathlib import Path

import pytest

from gradientmail.cli.closing import closer_beside
from gradientmail.config import NodeSettings
from tests.cli.conftest import Cli, make_run
from tests.cli.processes import Command, lease_is_released, until

QUICK = {
    "fragments": 2,
    "sync_every": 10,
    "poll_s": 0.05,
    "lease_s": 1.0,
    "presence_s": 5.0,
}


@pytest.fixture
def quick_run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run", **QUICK)
    return tmp_path / "run"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(quick_run: Path, number: signal.Signals) -> None:
    with Command("closer", quick_run, "--name", "c1") as closer:
        closer.read_until("holding the lease")
        closer.process.send_signal(number)

        log = closer.log()

    assert closer.process.returncode == 0
    assert lease_is_released(quick_run)
    assert {line["closer"] for line in log if line["logger"] == "gradientmail.closer"} == {"c1"}


def test_until_done_ends_with_the_run(tmp_path: Path, cli: Cli) -> None:
    url = tmp_path / "run"
    make_run(url, **QUICK, stop_after_rounds=4)

    with Command("closer", url, "--until-done") as closer, Command("learner", url) as learner:
        assert (closer.ended(), learner.ended()) == (0, 0)

    assert "done, 4 of 4 rounds closed" in cli("status", url).stdout


def test_a_closer_beside_a_learner_ends_with_it_even_when_that_is_killed(quick_run: Path) -> None:
    with Command("learner", quick_run, "--with-closer") as learner:
        learner.read_until("closed round 0")
        learner.process.kill()

        until(lambda: lease_is_released(quick_run))


def test_a_learner_is_told_of_the_end_of_the_closer_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closer_beside(str(tmp_path / "nothing"), NodeSettings()):
        until(lambda: "has ended with exit code 3" in caplog.text)


def test_a_missing_run_is_said_and_has_its_code(tmp_path: Path) -> None:
    with Command("closer", tmp_path / "nothing") as closer:
        (line,) = closer.log()

    assert closer.process.returncode == 3
    assert "no run here" in str(line["message"])
