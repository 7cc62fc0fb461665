"""Settings become parts, and settings that contradict each other are refused by name."""

from typing import Any

import pytest

import gradientmail as gm
from gradientmail.algorithm import DELTA, algorithm_of, by_name
from gradientmail.algorithms.alignment import Adaptive, Blend, Carry, Overwrite
from gradientmail.algorithms.gossip import NoLoCo
from gradientmail.algorithms.outer import HeavyBall
from gradientmail.algorithms.presets import PRESETS
from gradientmail.algorithms.weights import Uniform
from gradientmail.codecs.precision import Precision
from gradientmail.config import RunSettings, resolve
from gradientmail.errors import SettingsError


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_an_algorithm(preset: str) -> None:
    settings = resolve(RunSettings, ("preset", gm.preset(preset)))
    algorithm = algorithm_of(settings)
    assert algorithm.settings == settings
    assert algorithm.schedule.sync_every == settings.sync_every
    assert algorithm.quorum == settings.quorum


def test_settings_choose_the_parts() -> None:
    algorithm = algorithm_of(
        RunSettings(
            sync_every=100,
            fragments=4,
            in_flight=2,
            overlap_steps=None,
            uplink="I4",
            downlink="I8",
            outer_lr=0.4,
            outer="heavy-ball",
            outer_settings={"momentum": 0.8},
            weights="uniform",
            clip_ratio=3.0,
            flush_on_close=True,
            alignment="blend",
            mixing=0.25,
        )
    )
    assert algorithm.schedule == gm.RoundSchedule(100, 4, 2, None)
    assert (algorithm.delta_dtype, algorithm.update_dtype) == (Precision.I4, Precision.I8)
    assert algorithm.commit_dtype == Precision.F32
    assert algorithm.aggregator.outer == HeavyBall(lr=0.4, momentum=0.8)
    assert (algorithm.aggregator.weights, algorithm.aggregator.clip_ratio) == (Uniform(), 3.0)
    assert algorithm.alignment == Blend(0.25)
    assert (algorithm.mixing, algorithm.flush_on_close) == (0.25, True)


@pytest.mark.parametrize(
    ("name", "rule"), [("overwrite", Overwrite()), ("carry", Carry()), ("adaptive", Adaptive())]
)
def test_every_alignment_has_its_rule(name: Any, rule: object) -> None:
    assert algorithm_of(RunSettings(alignment=name)).alignment == rule


def test_payloads_have_the_sections_their_settings_call_for() -> None:
    exact = algorithm_of(RunSettings())
    assert set(exact.delta_format(4096).sections) == {DELTA}
    assert exact.update_format(4096) is None
    outer = exact.outer_format(4096)
    assert outer is not None
    assert set(outer.sections) == {"momentum"}
    rounded = algorithm_of(RunSettings(published="BF16")).outer_format(4096)
    assert rounded is not None
    assert set(rounded.sections) == {"momentum", "master"}
    plain = algorithm_of(RunSettings(outer="sgd"))
    assert plain.outer_format(4096) is None


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"sync_every": 3, "fragments": 4}, "set fragments to at most 3"),
        ({"in_flight": 2}, "in_flight=2: set 1 to 1"),
        ({"downlink": "I8", "published": "BF16"}, "set published = 'F32' or downlink = 'none'"),
        ({"alignment": "blend"}, "use 'overwrite'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], advice: str
) -> None:
    with pytest.raises(SettingsError, match=advice):
        algorithm_of(RunSettings(**settings))


def test_stochastic_rounding_needs_an_even_grid():
    with pytest.raises(SettingsError, match="set uplink to 'I8' or 'I4'"):
        algorithm_of(RunSettings(rounding="stochastic", uplink="NF4"))
    algorithm_of(RunSettings(rounding="stochastic", uplink="I8"))


def test_a_choice_made_in_python_stands_by_its_name() -> None:
    named = by_name(
        {"outer": HeavyBall(lr=0.4), "merge": "krum", "weights": Uniform(), "quorum": 2}
    )
    gossip = by_name({"gossip": NoLoCo(momentum=0.5)})
    assert named == {
        "outer": "heavy-ball",
        "outer_lr": 0.4,
        "outer_settings": {"momentum": 0.9},
        "merge": "krum",
        "weights": "uniform",
        "weights_settings": {},
        "quorum": 2,
    }
    assert (gossip["gossip"], gossip["gossip_settings"]["momentum"]) == ("noloco", 0.5)
    settings = resolve(RunSettings, ("argument", {**named, "quorum": 5}))
    assert algorithm_of(settings).aggregator.outer == HeavyBall(lr=0.4)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"outer": "adm"}, "unknown outer 'adm'; did you mean 'adam'"),
        ({"outer_settings": {"lr": 1.0}}, "outer_settings.lr: write it as outer_lr"),
        ({"outer_settings": {"nesterov": True}}, "'nesterov': it has no setting 'nesterov'"),
        ({"merge": "weighted_mean"}, "did you mean 'weighted-mean'"),
        ({"merge": "trimmed-mean", "merge_settings": {"trim": -1}}, "trim: Expected `int` >= 0"),
        ({"weights": "tokns"}, "did you mean 'tokens'"),
        ({"outer_schedule": "cosine"}, "it needs the setting 'versions'"),
        ({"guard": "supress"}, "did you mean 'suppress'"),
    ],
)
def test_a_choice_that_is_not_there_or_not_so_is_refused(
    settings: dict[str, Any], advice: str
) -> None:
    with pytest.raises(SettingsError, match=advice):
        algorithm_of(RunSettings(**settings))
