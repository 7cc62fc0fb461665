"""The doctor's word is a table, and a code that a script can act on."""

import io
import json
import threading
from pathlib import Path

import pytest
from rich.console import Console

from gradientmail.cli.probing import table_of
from gradientmail.doctor import Finding, Verdict
from tests.cli.conftest import Cli, make_run
from tests.e2e.team import PATIENCE_S, Team, eventually, keys_of
from tests.e2e.team import make_run as make_quick_run

PASSED = Finding("race", Verdict.PASSED, "3 races of 32 creators had one winner each")
WARNED = Finding("rights", Verdict.WARNED, "may not delete", "a closer must delete to sweep")
FAILED = Finding("create once", Verdict.FAILED, "a second create succeeded [twice]", "use another")


def found(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    async def probe_store(*_: object, **__: object) -> list[Finding]:
        return list(findings)

    monkeypatch.setattr("gradientmail.cli.probing.probe_store", probe_store)


def test_advice_follows_what_was_seen() -> None:
    console = Console(width=80, file=io.StringIO())

    console.print(table_of([PASSED, WARNED, FAILED]))

    text = console.file.getvalue()
    assert "a second create succeeded [twice]" in text
    assert text.index("may not delete") < text.index("-> a closer must delete to sweep")


@pytest.mark.parametrize(
    ("findings", "code", "says"),
    [
        ([PASSED], 0, "a run can be created here\n"),
        ([PASSED, WARNED], 0, "a run can be created here\n"),
        ([PASSED, FAILED], 4, "no run can be created here"),
    ],
)
def test_only_a_failure_is_an_error(
    cli: Cli, monkeypatch, tmp_path: Path, findings: list[Finding], code: int, says: str
) -> None:
    found(monkeypatch, *findings)

    result = cli("doctor", tmp_path)

    assert result.exit_code == code
    assert says in result.stdout


def lint(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    async def lint_run(store, url, *, clock, observing) -> list[Finding]:
        observing("run-1", 3.0)
        return list(findings)

    monkeypatch.setattr("gradientmail.cli.probing.lint_run", lint_run)


@pytest.mark.parametrize(
    ("findings", "code", "says"),
    [
        ([PASSED], 0, "run-1: all is well\n"),
        ([PASSED, WARNED], 0, "run-1: nothing failed; see what warned"),
        ([WARNED, FAILED], 7, "run-1: the run needs help: see what failed"),
    ],
)
def test_a_run_is_linted_and_its_store_is_not_probed(
    cli: Cli, monkeypatch, run_url: Path, findings: list[Finding], code: int, says: str
) -> None:
    lint(monkeypatch, *findings)

    result = cli("doctor", run_url)

    assert result.exit_code == code
    assert says in result.stdout


def test_json_has_all_that_the_table_has(cli: Cli, monkeypatch, run_url: Path) -> None:
    ill = Finding("rounds", Verdict.FAILED, "stuck", "look", "nobody trains")
    lint(monkeypatch, PASSED, ill)

    result = cli("doctor", run_url, "--json")

    assert result.exit_code == 7
    told = json.loads(result.stdout)
    assert (told["run"], told["verdict"]) == ("run-1", "failed")
    assert told["findings"][1] == {
        "name": "rounds",
        "verdict": "failed",
        "detail": "stuck",
        "advice": "look",
        "meaning": "nobody trains",
    }


def test_a_place_without_a_run_is_probed_as_json_too(
    cli: Cli, monkeypatch, tmp_path: Path
) -> None:
    found(monkeypatch, FAILED)

    result = cli("doctor", tmp_path, "--json")

    assert result.exit_code == 4
    assert json.loads(result.stdout)["run"] is None


def test_a_real_run_that_nobody_works_on_needs_help(cli: Cli, tmp_path: Path) -> None:
    make_run(tmp_path / "run", poll_s=0.02, presence_s=0.2, lease_s=0.2)

    result = cli("doctor", tmp_path / "run")

    assert result.exit_code == 7
    assert "no closer ever held the lease" in result.stdout
    assert "no round will be closed" in result.stdout


def test_a_run_that_has_ended_says_so_at_once_and_why(cli: Cli, tmp_path: Path) -> None:
    make_run(tmp_path / "run", poll_s=0.02, presence_s=1e6, lease_s=1e6)
    cli("stop", tmp_path / "run", "--reason", "enough")

    result = cli("doctor", tmp_path / "run")

    assert result.exit_code == 0
    assert "the run has ended: someone asked it to stop: enough" in result.stdout


def test_learners_that_train_without_a_closer_are_well(cli: Cli, tmp_path: Path) -> None:
    url, enough = tmp_path / "run", threading.Event()
    make_quick_run(url, "gossip", sync_every=10, quorum=2, presence_s=2.0)
    with Team(url) as team:
        running = [
            team.learner(name, leave_if=lambda _: enough.is_set()) for name in ("ann", "bob")
        ]
        eventually(lambda: keys_of(url, "gossip/0000/0000000002/"))
        result = cli("doctor", url)
        enough.set()
        for one in running:
            one.result(PATIENCE_S)

    assert result.exit_code == 0, result.stdout
    assert "2 live: ann, bob" in result.stdout
    assert "no closer is needed" in result.stdout
    assert "gradientmail closer" not in result.stdout


def test_a_damaged_run_is_damaged(cli: Cli, run_url: Path) -> None:
    (run_url / "manifest.json").write_text("{}")
    assert cli("doctor", run_url).exit_code == 6
