"""Settings: which source wins, and that every mistake is answered with what to write instead."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradientmail.config import (
    NodeSettings,
    RunSettings,
    checked,
    from_environment,
    nearest,
    resolve,
)
from gradientmail.errors import SettingsError


def refused(message: str, **values: Any) -> None:
    """Expect ``values`` of a run to be refused; ``message`` is a regular expression."""
    with pytest.raises(SettingsError, match=message):
        resolve(RunSettings, ("run.toml", values))


# -- layers ---------------------------------------------------------------------------------


def test_without_any_source_every_setting_has_its_default() -> None:
    assert resolve(RunSettings) == RunSettings()
    assert resolve(NodeSettings) == NodeSettings()


def test_a_later_layer_wins_and_leaves_the_others_settings() -> None:
    settings = resolve(
        RunSettings,
        ("preset", {"sync_every": 500, "fragments": 2, "quorum": 1}),
        ("run.toml", {"sync_every": 100, "quorum": 2}),
        ("flag", {"sync_every": 50}),
    )
    assert (settings.sync_every, settings.fragments, settings.quorum) == (50, 2, 2)


def test_none_unsets_what_a_weaker_layer_set() -> None:
    settings = resolve(
        RunSettings, ("preset", {"grace_s": 3.0}), ("run.toml", {"grace_s": "none"})
    )
    assert settings.grace_s is None


def test_an_error_names_the_layer_the_value_came_from() -> None:
    with pytest.raises(SettingsError, match=r"^flag: quorum = 0: .*>= 1"):
        resolve(RunSettings, ("run.toml", {"quorum": 2}), ("flag", {"quorum": 0}))


def test_a_bad_value_that_a_stronger_layer_replaces_is_forgiven() -> None:
    assert resolve(RunSettings, ("run.toml", {"quorum": 0}), ("flag", {"quorum": 2})).quorum == 2


# -- values ---------------------------------------------------------------------------------

TOML = """
sync_every = 100
outer_lr = 1
grace_s = 2.5
overlap_steps = "none"
flush_on_close = true
uplink = "I8"
downlink = "none"
"""


def test_values_have_the_types_of_toml() -> None:
    settings = resolve(RunSettings, ("run.toml", tomllib.loads(TOML)))
    assert settings == RunSettings(
        sync_every=100,
        outer_lr=1.0,
        grace_s=2.5,
        overlap_steps=None,
        flush_on_close=True,
        uplink="I8",
    )


def test_text_from_a_shell_becomes_the_settings_type() -> None:
    texts = {
        "sync_every": "100",
        "outer_lr": "1",
        "grace_s": "2.5",
        "overlap_steps": "none",
        "flush_on_close": "true",
        "error_feedback": "1",
        "uplink": "I8",
    }
    assert resolve(RunSettings, ("environment", texts)) == RunSettings(
        sync_every=100,
        outer_lr=1.0,
        grace_s=2.5,
        overlap_steps=None,
        flush_on_close=True,
        error_feedback=True,
        uplink="I8",
    )


def test_text_settings_stay_text() -> None:
    node = resolve(NodeSettings, ("flag", {"name": "007", "state_dir": "1", "device": "cuda:0"}))
    assert (node.name, node.state_dir, node.device) == ("007", "1", "cuda:0")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sync_every", 0, "run.toml: sync_every = 0: Expected `int` >= 1"),
        ("sync_every", "", "sync_every = '': Expected `int`"),
        ("sync_every", 1.5, "sync_every = 1.5: Expected `int`"),
        ("sync_every", True, "sync_every = True: Expected `int`"),
        ("sync_every", "none", "sync_every = None: Expected `int`, got `none`"),
        ("sync_every", [100], "Expected `int`"),
        ("sync_every", 10**30, "sync_every = 1000"),
        ("fragments", 10_000, "<= 9999"),
        ("outer_lr", 0.0, "> 0.0"),
        ("outer_lr", -1, "> 0.0"),
        ("outer_lr", float("nan"), "outer_lr = nan"),
        ("outer_lr", float("inf"), "<= 100.0"),
        ("outer_lr", "fast", "Expected `float | none`"),
        ("mixing", 1.1, "<= 1.0"),
        ("grace_s", -0.5, ">= 0.0"),
        ("grace_s", "soon", "Expected `float | none`"),
        ("clip_ratio", 0.5, ">= 1.0"),
        ("clip_ratio", float("inf"), "clip_ratio = inf"),
        ("poll_s", 0, "> 0.0"),
        ("flush_on_close", "yes", "flush_on_close = 'yes': write true or false"),
        ("uplink", "I9", "uplink = 'I9': not one of its values; known: BF16, F16"),
        ("uplink", 8, "did you mean 'I8'?"),
        ("downlink", "int8", "known: BF16, F16"),
        ("alignment", "overwite", "did you mean 'overwrite'?"),
    ],
)
def test_a_value_out_of_range_is_refused_saying_what_is_in_range(
    key: str, value: object, message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        resolve(RunSettings, ("run.toml", {key: value}))
    assert message in str(caught.value)
    assert "$" not in str(caught.value), "a path into msgspec's object tells a person nothing"


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a.b", "x" * 65, "a\n", "\u00e4"])
def test_a_name_that_fits_in_no_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="flag: name = "):
        resolve(NodeSettings, ("flag", {"name": name}))


# -- keys -----------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_naming_the_nearest() -> None:
    refused(r"run.toml: unknown setting 'sync_evry'; did you mean 'sync_every'\?", sync_evry=1)
    refused(r"unknown setting 'outer-lr'; did you mean 'outer_lr'\?", **{"outer-lr": 0.7})


def test_a_key_like_no_other_is_refused_listing_all() -> None:
    refused("unknown setting 'zzz'; known: algorithm, alignment, .* weights", zzz=1)


def test_a_nodes_key_at_top_level_is_told_its_place() -> None:
    refused(r"'state_dir' belongs in the \[node\] table", **tomllib.loads("state_dir = 'x'"))


def test_a_runs_key_in_the_node_table_is_told_its_place() -> None:
    with pytest.raises(SettingsError, match=r"'quorum' belongs in the top level of run.toml"):
        resolve(NodeSettings, ("run.toml [node]", {"quorum": 2}))


def test_no_setting_is_both_the_runs_and_a_nodes() -> None:
    assert not set(RunSettings.__struct_fields__) & set(NodeSettings.__struct_fields__)


@pytest.mark.parametrize("kind", [RunSettings, NodeSettings])
def test_every_setting_is_described(kind: type) -> None:
    described = (kind.__doc__ or "").partition("Attributes:")[2]
    assert [k for k in kind.__struct_fields__ if f"        {k}: " not in described] == []


# -- tables of named choices ---------------------------------------------------------------


def layered(*layers: dict[str, Any]) -> RunSettings:
    return resolve(RunSettings, *((f"layer {i}", values) for i, values in enumerate(layers)))


def test_tables_of_several_layers_become_one() -> None:
    found = layered(
        {"outer": "adam", "outer_settings": {"beta1": 0.8, "beta2": 0.9}},
        {"outer_settings": {"beta2": 0.95}},
    )
    assert found.outer_settings == {"beta1": 0.8, "beta2": 0.95}


def test_another_choice_leaves_nothing_of_what_was_set_for_the_first() -> None:
    preset = {"outer": "nesterov", "outer_lr": 0.4, "outer_settings": {"momentum": 0.9}}
    other = layered(preset, {"outer": "adam", "outer_settings": {"beta2": 0.95}})
    assert (other.outer, other.outer_lr, other.outer_settings) == ("adam", None, {"beta2": 0.95})
    gossip = {"gossip": "noloco", "gossip_settings": {"momentum": 0.5}}
    assert layered(gossip, {"gossip": "average"}).gossip_settings == {}
    same = layered(preset, {"outer": "nesterov"})
    assert (same.outer_lr, same.outer_settings) == (0.4, {"momentum": 0.9})


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("outer_settings", '{"momentum": 0.5}', {"momentum": 0.5}),
        ("outer_settings.momentum", "0.5", {"momentum": 0.5}),
        ("outer_settings.amsgrad", "true", {"amsgrad": True}),
        ("outer_settings.maximize", "none", {"maximize": None}),
        ("outer_settings.mode", "text", {"mode": "text"}),
        ("outer_settings", {"betas": (0.9, 0.99)}, {"betas": [0.9, 0.99]}),
        ("outer_settings", "none", {}),
    ],
)
def test_a_table_may_be_written_in_any_place(key: str, value: object, found: object) -> None:
    assert layered({key: value}).outer_settings == found


def test_what_is_no_table_is_refused_saying_how_to_write_one() -> None:
    refused(r"outer_settings = 0.9: write a table, .* as outer_settings.name", outer_settings=0.9)
    refused(r"unknown setting 'quorum.least'; did you mean 'quorum'", **{"quorum.least": 1})


# -- the environment ------------------------------------------------------------------------


def test_each_kind_takes_its_own_variables() -> None:
    environ = {
        "GRADIENTMAIL_SYNC_EVERY": "50",
        "GRADIENTMAIL_STATE_DIR": "/var/lib/gm",
        "PATH": "/bin",
        "XGRADIENTMAIL_QUORUM": "9",
    }
    assert from_environment(RunSettings, environ) == {"sync_every": "50"}
    assert from_environment(NodeSettings, environ) == {"state_dir": "/var/lib/gm"}


@pytest.mark.parametrize("kind", [RunSettings, NodeSettings])
@pytest.mark.parametrize(
    ("variable", "meant"), [("SYNC_EVREY", "sync_every"), ("STATE_DIRS", "state_dir")]
)
def test_a_misspelt_variable_is_refused_whichever_kind_it_meant(
    kind: type[RunSettings | NodeSettings], variable: str, meant: str
) -> None:
    with pytest.raises(SettingsError, match=f"GRADIENTMAIL_{variable}; did you mean '{meant}'"):
        from_environment(kind, {f"GRADIENTMAIL_{variable}": "1"})


def test_nearest_says_one_word_and_all_there_are() -> None:
    found = nearest("ovewrite", ["overwrite", "blend"])
    assert found == "; did you mean 'overwrite'? known: blend, overwrite"
    assert nearest("q", ["b", "a"]) == "; known: a, b"
    assert nearest("a", []) == ""


def test_a_long_list_is_left_out_where_a_word_is_near() -> None:
    many = [f"setting_{number}" for number in range(100)]
    assert nearest("setting_7x", many) == "; did you mean 'setting_7'?"
    assert "setting_0, setting_1, setting_10," in nearest("q", many)


# -- from a program -------------------------------------------------------------------------


def test_what_a_program_passes_is_checked_too(tmp_path: Path) -> None:
    assert checked(None) == NodeSettings()
    node = NodeSettings(name="ann", save_every_s=0.0, state_dir=tmp_path)  # type: ignore[arg-type]
    assert checked(node) == NodeSettings(name="ann", save_every_s=0.0, state_dir=str(tmp_path))
    with pytest.raises(SettingsError, match=r"NodeSettings: save_every_s = -2: .* >= 0"):
        checked(NodeSettings(save_every_s=-2))
    with pytest.raises(SettingsError, match="threads = 0"):
        checked(NodeSettings(threads=0))
