from pathlib import Path
from typing import Any

import pytest

from gradientmail.errors import SettingsError
from gradientmail.forecast.fleet import Model
from gradientmail.forecast.reading import (
    fleet_of,
    read_fleet,
    settings_side_by_side,
    tensors_of,
)

FLEETS = sorted((Path(__file__).parents[2] / "docs" / "fleets").glob("*.toml"))
LEARNER = {"name": "a", "step_s": 1, "up_mbit_s": 20, "down_mbit_s": 100}
GOOD: dict[str, Any] = {"hours": 1, "model": {"parameters": 10**6}, "learners": [LEARNER]}

# What is wrong with a fleet -> what the message says.
BAD: dict[str, dict[str, Any]] = {
    "no learners: write at least one": {"learners": []},
    "unknown key 'hour'; did you mean 'hours'?": {"hour": 2},
    "unknown key 'step'; did you mean 'step_s'?": {"learners": [{**LEARNER, "step": 2}]},
    "'a': step_s = -1: Expected `float` > 0.0": {"learners": [{**LEARNER, "step_s": -1}]},
    "step_s = 'fast': Expected `float`, got `str`": {"learners": [{**LEARNER, "step_s": "fast"}]},
    "up_mbit_s is missing": {"learners": [{"name": "a", "step_s": 1, "down_mbit_s": 1}]},
    "up_mbit_s and up_mbyte_s say the same": {"learners": [{**LEARNER, "up_mbyte_s": 2}]},
    "keeps_state = 1: write true or false": {"learners": [{**LEARNER, "keeps_state": 1}]},
    "name is missing": {"learners": [{"step_s": 1, "up_mbit_s": 1, "down_mbit_s": 1}]},
    "name = 'a b'": {"learners": [{**LEARNER, "name": "a b"}]},
    "leaves_h = 1.0 is not after joins_h": {
        "learners": [{**LEARNER, "joins_h": 2, "leaves_h": 1}]
    },
    "two [[learners]] are named 'a'": {"learners": [LEARNER, LEARNER]},
    "[model]: write either parameters": {"model": {}},
    "[model]: unknown key 'layers'; known: blocks, parameters": {"model": {"layers": 3}},
    "[closer]: unknown key 'cuont'; did you mean 'count'?": {"closer": {"cuont": 1}},
    "closer must be a table": {"closer": 3},
    "[store.prices]: unknown key 'get'": {"store": {"prices": {"get": 1}}},
    "latency_s = -1": {"store": {"latency_s": -1}},
    "unknown algorithm 'dilico'; did you mean 'diloco'?": {"presets": ["dilico"]},
    "[run]: unknown setting 'sync_evry'; did you mean 'sync_every'?": {"run": {"sync_evry": 3}},
    "[run]: quorum = 0": {"run": {"quorum": 0}},
}


@pytest.mark.parametrize("message", BAD)
def test_a_mistake_is_one_line_that_says_where_and_what(message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        fleet_of({**GOOD, **BAD[message]}, source="FLEET.toml")
    assert message in str(caught.value)
    assert str(caught.value).startswith(("FLEET.toml", "unknown algorithm"))
    assert "\n" not in str(caught.value)


def test_how_long_must_be_said() -> None:
    without = {key: value for key, value in GOOD.items() if key != "hours"}
    with pytest.raises(SettingsError, match="how long"):
        fleet_of(without, source="F")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        read_fleet(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("hours = = 3", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"bad\.toml"):
        read_fleet(tmp_path / "bad.toml")


@pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.stem)
def test_the_worked_fleets_are_fleets(path: Path) -> None:
    fleet = read_fleet(path)
    assert list(settings_side_by_side(fleet)) == list(fleet.presets)


def test_bits_and_bytes_are_the_same_line() -> None:
    bits, in_bytes = (
        fleet_of({**GOOD, "learners": [{"name": "a", "step_s": 1, **line}]}, source="F").learners[
            0
        ]
        for line in (
            {"up_mbit_s": 80, "down_mbit_s": 160},
            {"up_mbyte_s": 10, "down_mbyte_s": 20},
        )
    )
    assert bits.up_bytes_s == in_bytes.up_bytes_s == 10e6
    assert bits.down_bytes_s == in_bytes.down_bytes_s == 20e6


def test_presets_stand_side_by_side_under_the_same_settings() -> None:
    fleet = fleet_of({**GOOD, "run": {"poll_s": 3.0}, "presets": ["diloco"]}, source="F")
    found = settings_side_by_side(fleet, ("diloco", "local-sgd"))
    assert [one.sync_every for one in found.values()] == [500, 8]
    assert {one.poll_s for one in found.values()} == {3.0}
    assert list(settings_side_by_side(fleet)) == ["diloco"]


def test_a_shape_is_a_transformer_of_that_shape() -> None:
    tensors = tensors_of(Model(width=768, blocks=12, vocabulary=50304))
    assert sum(tensor.numel for tensor in tensors) == 12 * 12 * 768**2 + 50304 * 768 + 768
    assert sum(tensor.numel for tensor in tensors_of(Model(parameters=10**7 + 1))) == 10**7 + 1
