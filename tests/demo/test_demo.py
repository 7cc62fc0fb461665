import json
import os
from pathlib import Path

import pytest
from safetensors.torch import load_file

from gradientmail.demo.demo import MARK, run_demo
from gradientmail.demo.scale import SETTINGS, Scale
from gradientmail.demo.story import CLOSER
from gradientmail.errors import SettingsError

TINY = Scale(
    program="tests.demo.programs:tiny",
    settings={**SETTINGS, "sync_every": 40, "poll_s": 0.1, "grace_s": 0.2, "lease_s": 1.0},
    shares={"fast": 0.2, "slow-1": 0.05},
    seconds=8.0,
    kills=((CLOSER, 0.3),),
    away_s=0.1,
    evaluate_every_s=3.0,
    sampled=8,
)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GRADIENTMAIL_")]:
        monkeypatch.delenv(name)


def test_a_small_demo_leaves_everything_it_promises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_demo("local", tmp_path / "out", scale=TINY)

    said = capsys.readouterr().out
    for expected in ("created run-", "kill -9", "started closer again", "nats per byte", "def "):
        assert expected in said
    for name in ("loss.png", "rounds.png"):
        assert (tmp_path / "out" / name).stat().st_size > 10_000
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["rounds"] > 2
    assert [one["name"] for one in summary["learners"]] == ["fast", "slow-1"]
    assert all(one["steps"] > 0 and one["up_bytes"] > 0 for one in summary["learners"])
    assert summary["loss"]["together"] < summary["loss"]["start"]
    assert summary["loss"]["alone"] < summary["loss"]["start"]
    assert [lost["name"] for lost in summary["lost"]] == ["closer"]
    exported = load_file(tmp_path / "out/model.safetensors")
    assert sum(value.numel() for value in exported.values()) == summary["parameters"]
    for name in ("init", "closer", "fast", "slow-1", "stop", "export", "alone"):
        lines = (tmp_path / f"out/logs/{name}.jsonl").read_text().splitlines()
        assert all("message" in json.loads(line) for line in lines)


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(SettingsError, match="--out"):
        run_demo("local", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_what_a_demo_left_is_replaced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / MARK).touch()
    (tmp_path / "run").mkdir()
    monkeypatch.setattr("gradientmail.demo.demo._play", _nothing)
    run_demo("local", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [MARK]


async def _nothing(*_: object) -> None:
    pass


def test_an_unknown_store_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="local, s3"):
        run_demo("floppy", tmp_path / "out")
    assert not (tmp_path / "out").exists()
