from pathlib import Path

from gradientmail.algorithms.presets import preset
from gradientmail.cli.settings import run_settings
from gradientmail.demo.scale import SETTINGS, Scale


def test_its_run_toml_says_what_its_settings_do(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    Scale(settings={**SETTINGS, "error_feedback": False}).write_config(config)
    settings = run_settings(config, (), {})
    given = {**preset("decoupled-diloco"), **SETTINGS, "error_feedback": False}
    given["outer_settings"] = {}  # those of the preset's outer optimizer, which is not the demo's
    assert {name: getattr(settings, name) for name in given} == given
