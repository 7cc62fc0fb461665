"""Every error is one clear line on stderr and a code that scripts can act on."""

import json

import pytest

from gradientmail.errors import (
    ContractError,
    FormatVersionError,
    NonFiniteError,
    RecordError,
    RunExistsError,
    RunNotFoundError,
    SettingsError,
    StateNotSavedError,
    StoreAccessError,
    StoreFullError,
    StoreUnavailableError,
    StoreUnfitError,
)
from tests.cli.conftest import Cli


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run_stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("gradientmail.cli.stopping.run_stop", run_stop)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("a bug"), 1),
        (StateNotSavedError("disk"), 1),
        (SettingsError("P > H"), 2),
        (RunNotFoundError("none"), 3),
        (RunExistsError("one"), 3),
        (StoreAccessError("no credentials: set AWS_ACCESS_KEY_ID"), 4),
        (StoreAccessError("NoSuchBucket: create the bucket"), 4),
        (StoreFullError("full"), 4),
        (StoreUnavailableError("silence"), 4),
        (StoreUnfitError("create is not atomic"), 4),
        (ContractError(["weight: shape (1,) in the run, (2,) here"]), 5),
        (RecordError("manifest.json", "not a JSON record"), 6),
        (FormatVersionError("manifest.json", "format 'manifest/2'"), 6),
        (NonFiniteError("NaN"), 6),
    ],
)
def test_an_error_is_its_message_and_its_code(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    fail_with(monkeypatch, error)

    result = cli("stop", "somewhere")

    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert str(error) in result.stderr
    assert "Traceback" not in result.stderr


def test_the_traceback_is_shown_to_who_debugs(cli: Cli, monkeypatch) -> None:
    fail_with(monkeypatch, ValueError("a bug"))

    assert "--log-level debug" in cli("stop", "somewhere").stderr
    assert "Traceback" in cli("stop", "somewhere", "--log-level", "debug").stderr


def test_with_json_logs_the_error_is_a_json_line_too(cli: Cli, monkeypatch) -> None:
    monkeypatch.setenv("GRADIENTMAIL_LOG_FORMAT", "json")
    fail_with(monkeypatch, SettingsError("P > H"))

    line = json.loads(cli("stop", "somewhere").stderr)

    assert (line["level"], line["message"]) == ("error", "P > H")


def test_ctrl_c_in_a_short_command_is_130(cli: Cli, monkeypatch) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())

    assert cli("stop", "somewhere").exit_code == 130
