"""What can be typed, and what a wrong word gets."""

from pathlib import Path

import pytest

from gradientmail import __version__
from gradientmail.cli.exits import CODES
from tests.cli.conftest import Cli

COMMANDS = ["init", "learner", "closer", "status", "stop", "export", "verify", "doctor", "demo"]


def words_of(text: str) -> str:
    """Return ``text`` without the frame and the folds of a help page."""
    return " ".join(text.replace("\u2502", " ").split())


def test_no_word_at_all_shows_every_command_and_every_exit_code(cli: Cli) -> None:
    result = cli()

    text = words_of(result.stdout + result.stderr)
    assert all(f" {command} " in text for command in COMMANDS)
    assert all(f" {code} " in text for code in {0, 1, 130, 143, *CODES.values()})


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_and_says_what_each_flag_is_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    result = cli(command, "--help")

    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= width


def test_the_version_is_the_packages(cli: Cli) -> None:
    assert cli("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize(
    "words",
    [["stop"], ["halt", "x"], ["status", "x", "--jsn"], ["export", "a", "b", "--version", "x"]],
)
def test_a_word_that_is_none_is_a_usage_error(cli: Cli, words: list[str]) -> None:
    assert cli(*words).exit_code == 2


@pytest.mark.parametrize("command", ["learner", "closer", "status", "stop", "export"])
def test_a_run_that_is_not_there_is_said_to_be_so(cli: Cli, tmp_path: Path, command: str) -> None:
    words = [command, tmp_path / "nothing", *([tmp_path / "out"] if command == "export" else [])]

    result = cli(*words)

    assert result.exit_code == 3
    assert result.stderr == "error: no run here: `gradientmail init` creates one\n"


@pytest.mark.parametrize("command", ["learner", "closer", "status", "stop", "doctor"])
def test_a_url_of_no_known_kind_is_refused(cli: Cli, command: str) -> None:
    result = cli(command, "s4://bucket/run")

    assert result.exit_code == 2
    assert "no store is called s4://" in result.stderr


def test_a_manifest_of_a_newer_format_is_refused_by_name(cli: Cli, run_url: Path) -> None:
    manifest = run_url / "manifest.json"
    manifest.write_text(manifest.read_text().replace("manifest/1", "manifest/2"))

    result = cli("status", run_url)

    assert result.exit_code == 6
    assert "'manifest/2'" in result.stderr


def test_a_damaged_manifest_is_refused_by_its_key(cli: Cli, run_url: Path) -> None:
    (run_url / "manifest.json").write_text("")

    result = cli("status", run_url)

    assert result.exit_code == 6
    assert "key='manifest.json'" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--throttle", "2"], "flag: throttle = 2.0"),
        (["--log-format", "jsn"], "did you mean 'json'?"),
        (["--store-client", "boto"], "flag: store_client = 'boto'"),
        (["--device", "gpu"], "device = 'gpu': Expected one of"),
        (["--name", "a/b"], "flag: name = 'a/b'"),
        (["--program", "no_colon"], "module:function"),
        (["--program", "tests.cli.program:tiny"], "no module 'tests.cli.program'"),
        (["--program", "tests.cli.programs:wrong"], "returned int"),
        (["--config", "absent.toml"], "absent.toml: No such file"),
    ],
)
def test_a_wrong_flag_of_a_learner_says_what_to_write(
    cli: Cli, run_url: Path, words: list[str], says: str
) -> None:
    result = cli("learner", run_url, *words)

    assert result.exit_code == 2
    assert says in result.stderr
