import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ROOT = Path(__file__).parents[2]
FLEET = """
hours = 1
presets = ["diloco", "decoupled-diloco"]
[model]
parameters = 1_000_000
[[learners]]
name = "home"
count = 3
step_s = 1
step_spread = 0.2
up_mbit_s = 20
down_mbit_s = 100
price_per_hour = 0.5
[[learners]]
name = "lab"
step_s = 0.5
up_mbit_s = 200
down_mbit_s = 200
[store.prices]
put_per_million = 5
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET, encoding="utf-8")
    return path


def test_a_forecast_is_printed_by_a_process_of_its_own(fleet: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "gradientmail.cli.main", "simulate", fleet, "--json"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert [one["name"] for one in found] == ["diloco", "decoupled-diloco"]
    assert [learner["name"] for learner in found[0]["learners"]] == [
        "home-0",
        "home-1",
        "home-2",
        "lab",
    ]
    assert found[0]["money"]["learners"] == pytest.approx(1.5, abs=0.01)


def test_presets_stand_side_by_side_in_a_table_that_fits(cli: Cli, fleet: Path) -> None:
    result = cli("simulate", fleet)
    assert result.exit_code == 0, result.stderr
    assert "4 learners, 1M parameters; 1 h from the start, seed 0" in result.stdout
    for words in ("diloco  decoupled-diloco", "utilisation", "cost in all", "home, 3", "lab"):
        assert words in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_flags_are_stronger_than_the_file(cli: Cli, fleet: Path) -> None:
    flags = ("--preset", "local-sgd", "--rounds", 3, "--set", "sync_every=20", "--seed", 5)
    result = cli("simulate", fleet, "--json", *flags)
    assert result.exit_code == 0, result.stderr
    (one,) = json.loads(result.stdout)
    assert (one["name"], one["rounds"]) == ("local-sgd", 3)
    assert one["learners"][0]["steps"] >= 60


def test_a_picture_is_drawn(cli: Cli, fleet: Path, tmp_path: Path) -> None:
    result = cli("simulate", fleet, "--plot", tmp_path / "fleet.png", "--plot-hours", 0.2)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "fleet.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--set", "sync_evry=3"), "did you mean 'sync_every'?"),
        (("--set", "sync_every"), "write --set key=value"),
        (("--preset", "dilico"), "did you mean 'diloco'?"),
        (("--set", "fragments=900"), "fragments=900"),
    ],
)
def test_a_wrong_flag_is_one_line(
    cli: Cli, fleet: Path, flags: tuple[str, str], words: str
) -> None:
    result = cli("simulate", fleet, *flags)
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")


def test_a_wrong_file_is_one_line(cli: Cli, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("step_spread", "spread"), encoding="utf-8")
    result = cli("simulate", fleet)
    assert result.exit_code == 2
    assert "unknown key 'spread'; did you mean 'step_spread'?" in result.stderr
