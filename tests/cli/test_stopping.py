"""A stop is asked for once."""

from pathlib import Path

from tests.cli.conftest import Cli


def test_it_says_whether_the_run_had_been_asked_before(cli: Cli, run_url: Path) -> None:
    first = cli("stop", run_url, "--reason", "[enough]")
    second = cli("stop", run_url, "--reason", "again")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout == "the run ends after the rounds in flight\n"
    assert second.stdout == "the run was asked to end before\n"
    assert "stopping ([enough]), 0 rounds closed" in cli("status", run_url).stdout
