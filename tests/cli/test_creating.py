"""``init`` creates a run or says what to change, and leaves nothing when it does not."""

import re
from pathlib import Path

import msgspec
import pytest

from gradientmail.errors import StoreAccessError, StoreUnfitError
from gradientmail.operations.status import RunStatus
from tests.cli.conftest import Cli

PROGRAM = "tests.cli.programs:tiny"


@pytest.fixture
def url(tmp_path: Path) -> Path:
    return tmp_path / "run"


def objects_in(url: Path) -> list[Path]:
    return [path for path in url.rglob("*") if path.is_file()]


def test_it_says_what_was_created_and_what_to_type_next(cli: Cli, url: Path) -> None:
    result = cli("init", url, "--program", PROGRAM, "--set", "fragments=2")

    assert result.exit_code == 0
    assert "113 numbers in 8 tensors, each fragment every 100 steps" in result.stdout
    assert "0.bias to 1.running_var" in result.stdout
    assert f"  gradientmail learner {url} --state-dir DIRECTORY\n" in result.stdout
    assert result.stderr == ""


def test_no_closer_is_to_be_typed_where_there_is_none(cli: Cli, url: Path) -> None:
    result = cli("init", url, "--program", PROGRAM, "--set", "algorithm=gossip")

    assert "gradientmail learner" in result.stdout
    assert "gradientmail closer" not in result.stdout


@pytest.mark.parametrize(
    ("algorithm", "costs"),
    [
        ("diloco", ["up/round", "down/round", "36.9 kB", "36.9 kB"]),
        ("gossip", ["up/round", "down/neighbour", "36.9 kB", "36.9 kB"]),
        ("noloco", ["up/round", "down/neighbour", "69.6 kB", "69.6 kB"]),
        ("local", []),
    ],
)
def test_it_says_what_a_round_costs_by_whom_learners_exchange_through(
    algorithm: str, costs: list[str], cli: Cli, url: Path
) -> None:
    result = cli("init", url, "--program", PROGRAM, "--set", f"algorithm={algorithm}")
    said = re.findall(r"\S+/(?:round|neighbour)|[0-9.]+ kB", result.stdout)
    assert said == costs


def test_the_run_has_the_settings_of_file_environment_and_flags(
    cli: Cli, url: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "run.toml"
    config.write_text('algorithm = "streaming-diloco"\nplan = "bytes"\n[node]\nname = "n"\n')
    monkeypatch.setenv("GRADIENTMAIL_FRAGMENTS", "3")

    created = cli("init", url, "--program", PROGRAM, "--config", config, "--set", "seed=9")

    assert created.exit_code == 0
    status = msgspec.json.decode(cli("status", url, "--json").stdout, type=RunStatus)
    assert status.program == PROGRAM
    settings = status.settings
    assert (settings.algorithm, settings.uplink, settings.seed) == ("streaming-diloco", "F4", 9)
    assert len(status.fragments) == settings.fragments == 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "sync_evry=3"], "did you mean 'sync_every'?"),
        (["--set", "fragments=4", "--set", "sync_every=3"], "set fragments to at most 3"),
        (["--set", "fragments=70"], "set fragments to at most 6"),
        (["--set", "lease_s=2"], "set lease_s above 4"),
        (["--set", "uplink=I9"], "uplink = 'I9'"),
        (["--program", "no_colon"], "module:function"),
        (["--program", "tests.cli.program:tiny"], "no module 'tests.cli.program'"),
        (["--program", "tests.cli.programs:tini"], "did you mean 'tiny'?"),
        (["--program", "tests.cli.programs:wrong"], "returned int"),
        (["--config", "absent.toml"], "absent.toml: No such file"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_left(
    cli: Cli, url: Path, words: list[str], says: str
) -> None:
    result = cli("init", url, "--program", PROGRAM, *words)

    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert objects_in(url) == []


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("algorithm=fedavgg", ["fedavg", "diloco", "noloco"]),
        ("merge=krumm", ["krum", "bulyan", "weighted-mean"]),
        ("weights=sample", ["samples", "tokens", "uniform"]),
        ("outer=adm", ["adam", "nesterov", "delayed-nesterov"]),
        ("outer=torch.optim.Adm", ["Adam", "AdamW", "RAdam"]),
        ("outer_schedule=cosin", ["cosine", "linear"]),
        ("guard=supress", ["suppress", "damp", "off"]),
        ("topology=rinng", ["ring", "star", "random-pairs"]),
        ("gossip=avrage", ["average", "noloco"]),
        ("selection=randm", ["random", "tags", "all"]),
        ("uplink=I9", ["I8", "I4", "SPARSE"]),
        ("alignment=cary", ["carry", "eager", "blend"]),
        ("plan=stride", ["strided", "bytes"]),
    ],
)
def test_a_name_that_is_none_is_refused_by_what_there_is(
    cli: Cli, url: Path, setting: str, names: list[str]
) -> None:
    result = cli("init", url, "--program", PROGRAM, "--set", setting)

    assert (result.exit_code, objects_in(url)) == (2, [])
    (line,) = result.stderr.splitlines()
    assert repr(setting.partition("=")[2]) in line
    listed = line.partition("known: ")[2].partition(";")[0].split(", ")
    assert set(names) <= set(listed)


def test_what_a_module_names_is_refused_by_the_module(cli: Cli, url: Path, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text('[modules.0]\nouter = "adm"\n')

    result = cli("init", url, "--program", PROGRAM, "--config", config)

    assert (result.exit_code, objects_in(url)) == (2, [])
    assert "modules.0: unknown outer 'adm'; did you mean 'adam'?" in result.stderr


def test_a_run_that_is_there_is_untouched(cli: Cli, run_url: Path) -> None:
    before = {path: path.read_bytes() for path in objects_in(run_url)}

    result = cli("init", run_url, "--program", PROGRAM)

    assert result.exit_code == 3
    assert "there is a run here already" in result.stderr
    assert {path: path.read_bytes() for path in objects_in(run_url)} == before


@pytest.mark.parametrize(
    "error",
    [
        StoreUnfitError("the store lets a key be created twice"),
        StoreAccessError("create 'x': 403 AccessDenied: these credentials may not do this here"),
    ],
)
def test_a_store_that_fails_the_probe_gets_no_run(
    cli: Cli, url: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def require_fit(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("gradientmail.cli.creating.require_fit", require_fit)

    result = cli("init", url, "--program", PROGRAM)

    assert result.exit_code == 4
    assert str(error) in result.stderr
    assert objects_in(url) == []


def test_a_buckets_missing_credentials_are_named(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    result = cli("init", "s3://bucket/run", "--program", PROGRAM)

    assert result.exit_code == 4
    assert "set AWS_ACCESS_KEY_ID" in result.stderr
