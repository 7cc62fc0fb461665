"""A setting is taken from the strongest place that has it, and a wrong one names its place."""

from pathlib import Path

import pytest

from gradientmail.algorithms.presets import DEFAULT, preset
from gradientmail.cli.settings import node_settings, run_settings
from gradientmail.config import RunSettings, resolve
from gradientmail.errors import SettingsError


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(
        'algorithm = "decoupled-diloco"\nsync_every = 40\nquorum = 2\n'
        '[node]\ndevice = "cuda:0"\nthrottle = 0.5\n'
    )
    return path


def test_flag_beats_environment_beats_file_beats_preset_beats_default(config: Path) -> None:
    settings = run_settings(
        config,
        ["quorum=4"],
        {"GRADIENTMAIL_QUORUM": "3", "GRADIENTMAIL_SYNC_EVERY": "60", "PATH": "/bin"},
    )

    assert settings.quorum == 4
    assert settings.sync_every == 60
    assert settings.uplink == "I8"
    assert settings.poll_s == RunSettings().poll_s


@pytest.mark.parametrize("place", ["file", "environment", "flag"])
def test_the_preset_may_be_named_in_any_place(tmp_path: Path, place: str) -> None:
    config = tmp_path / "run.toml"
    config.write_text('algorithm = "local-sgd"' if place == "file" else "")
    environ = {"GRADIENTMAIL_ALGORITHM": "local-sgd"} if place == "environment" else {}
    flags = ["algorithm=local-sgd"] if place == "flag" else []

    settings = run_settings(config, flags, environ)

    assert (settings.algorithm, settings.sync_every, settings.outer_lr) == ("local-sgd", 8, 1.0)


def test_where_nothing_names_a_preset_it_is_the_one_for_scattered_machines() -> None:
    settings = run_settings(None, [], {})
    assert settings == resolve(RunSettings, ("preset", preset(DEFAULT)))
    assert settings.algorithm == RunSettings().algorithm


def test_none_takes_a_setting_away() -> None:
    assert run_settings(None, ["algorithm=decoupled-diloco", "grace_s=none"], {}).grace_s is None


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        (["sync_evry=3"], "--set: unknown setting 'sync_evry'; did you mean 'sync_every'?"),
        (["sync_every"], "--set sync_every: write --set key=value"),
        (["sync_every=many"], "--set: sync_every = 'many': "),
        (["device=cpu"], r"--set: 'device' belongs in the \[node\] table"),
        (["algorithm=diloko"], "unknown algorithm 'diloko'; did you mean 'diloco'?"),
        (["preset=diloco"], "--set: unknown setting 'preset'; a preset is named by 'algorithm'$"),
        (["quorum=0"], "--set: quorum = '0': .*>= 1"),
    ],
)
def test_a_wrong_flag_says_what_to_write(assignments: list[str], says: str) -> None:
    with pytest.raises(SettingsError, match=says.replace("?", r"\?")):
        run_settings(None, assignments, {})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sync_every = ", "run.toml: Invalid value"),
        ("fragmens = 2", "run.toml: unknown setting 'fragmens'; did you mean 'fragments'"),
        ('fragments = "2x"', "run.toml: fragments = '2x'"),
        ("node = 3", r"write \[node\] on a line of its own"),
        ("device = 'cpu'", r"belongs in the \[node\] table"),
    ],
)
def test_a_wrong_file_says_where(tmp_path: Path, text: str, says: str) -> None:
    config = tmp_path / "run.toml"
    config.write_text(text)

    with pytest.raises(SettingsError, match=says):
        run_settings(config, [], {})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent.toml: No such file"):
        run_settings(tmp_path / "absent.toml", [], {})


def test_an_unknown_variable_with_our_prefix_is_refused() -> None:
    with pytest.raises(SettingsError, match="GRADIENTMAIL_QUORUMM; did you mean 'quorum'"):
        run_settings(None, [], {"GRADIENTMAIL_QUORUMM": "2"})


def test_a_variable_for_the_preset_says_what_its_name_is() -> None:
    with pytest.raises(SettingsError, match="GRADIENTMAIL_PRESET; a preset is named by 'algo"):
        run_settings(None, [], {"GRADIENTMAIL_PRESET": "diloco"})


def test_node_settings_come_from_their_table_and_flags_that_were_given(config: Path) -> None:
    node = node_settings(
        config, {"throttle": 0.25, "name": None}, {"GRADIENTMAIL_LOG_FORMAT": "json"}
    )

    assert (node.device, node.throttle, node.name, node.log_format) == (
        "cuda:0",
        0.25,
        None,
        "json",
    )


def test_a_node_setting_out_of_range_is_refused(config: Path) -> None:
    with pytest.raises(SettingsError, match=r"flag: throttle = 1.5: .*<= 1"):
        node_settings(config, {"throttle": 1.5}, {})


def test_a_strategy_document_is_stronger_than_its_preset_and_weaker_than_the_rest(
    tmp_path: Path,
) -> None:
    strategy = tmp_path / "strategy.json"
    strategy.write_text(
        '{"type": "Federated", "num_clients": 10, "rounds": 50,'
        ' "aggregation": {"method": "FedAvgM", "momentum": 0.5}}'
    )
    config = tmp_path / "run.toml"
    config.write_text("quorum = 4\n")
    settings = run_settings(config, ("stop_after_rounds=7",), {}, strategy)
    assert (settings.algorithm, settings.quorum, settings.stop_after_rounds) == ("fedavgm", 4, 7)
    assert settings.outer_settings == {"momentum": 0.5}


def test_a_strategy_that_is_not_built_here_is_refused_naming_the_file(tmp_path: Path) -> None:
    strategy = tmp_path / "strategy.json"
    strategy.write_text('{"type": "Pipeline"}')
    with pytest.raises(SettingsError, match=r"strategy.json: type = 'Pipeline' is not built here"):
        run_settings(None, (), {}, strategy)
    with pytest.raises(SettingsError, match=r"nosuch.json: No such file"):
        run_settings(None, (), {}, tmp_path / "nosuch.json")
