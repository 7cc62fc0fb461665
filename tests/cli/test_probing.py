"""The doctor's word is a table, and a code that a script can act on."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from gradientmail.cli.probing import table_of
from gradientmail.doctor import Finding, Verdict
from tests.cli.conftest import Cli

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


def test_a_run_that_is_here_already_is_named(cli: Cli, monkeypatch, run_url: Path) -> None:
    found(monkeypatch, PASSED)

    assert "not under this URL, which holds run-" in cli("doctor", run_url).stdout

    (run_url / "manifest.json").write_text("{}")
    assert "which holds a damaged one" in cli("doctor", run_url).stdout


def test_a_directory_passes_every_probe(cli: Cli, tmp_path: Path) -> None:
    result = cli("doctor", tmp_path)

    assert result.exit_code == 0
    assert "one winner each" in result.stdout
    assert "failed" not in result.stdout
