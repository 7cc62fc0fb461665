"""By module: the nearest prefix decides, and what cannot be set or matches nothing is refused."""

from typing import Any

import pytest

from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.protocol.modules import (
    REST,
    prefix_of,
    require_matched,
    settings_of,
    stays_local,
)

NAMES = ["wte.weight", "blocks.0.attn.w", "blocks.0.norm.w", "blocks.10.experts.3.w", "head.w"]


def run(**modules: dict[str, Any]) -> RunSettings:
    return RunSettings(modules=modules, outer="adam", outer_settings={"beta2": 0.9}, outer_lr=0.05)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("blocks.0.attn.w", "blocks"),
        ("blocks.0.norm.w", "blocks.*.norm"),
        ("blocks.1.norm.w", "blocks.1.norm"),
        ("blocks.1.normal.w", "blocks"),
        ("blocksy.1", REST),
        ("head.w", "he*"),
        ("w", REST),
    ],
)
def test_the_nearest_prefix_of_whole_parts_decides(name: str, prefix: str) -> None:
    known = ["blocks", "blocks.*.norm", "blocks.1.norm", "blocks.*.no", "he*"]
    assert prefix_of(name, known) == prefix
    assert prefix_of(name, reversed(known)) == prefix


def test_a_module_has_the_runs_settings_but_its_own() -> None:
    own = settings_of(run(wte={"merge": "weighted-mean", "uplink": "I8"}), "wte")
    assert (own.uplink, own.outer, own.outer_lr, own.modules) == ("I8", "adam", 0.05, {})


def test_another_choice_of_a_module_leaves_nothing_of_the_runs() -> None:
    own = settings_of(run(wte={"outer": "sgd"}), "wte")
    assert (own.outer, own.outer_lr, own.outer_settings) == ("sgd", None, {})
    one = settings_of(run(wte={"outer_settings.beta2": 0.5}), "wte")
    assert one.outer_settings == {"beta2": 0.5}


def test_a_module_may_stay_with_each_learner() -> None:
    settings = run(**{"blocks.*.experts": {"exchange": "nobody"}, "blocks.0": {}})
    assert [name for name in NAMES if stays_local(name, settings)] == ["blocks.10.experts.3.w"]


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"quorum": 2}, "modules.wte: a module cannot set 'quorum'; known"),
        ({"uplnk": "I8"}, "a module cannot set 'uplnk'; did you mean 'uplink'"),
        ({"exchange": "gossip"}, "exchange = 'gossip': only 'nobody'"),
        ({"uplink": "I9"}, "modules.wte: uplink = 'I9'"),
        (3, "modules.wte = 3: write a table"),
    ],
)
def test_what_a_module_cannot_set_is_refused(own: Any, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        settings_of(run(wte=own), "wte")


def test_a_prefix_that_is_nearest_to_nothing_is_refused() -> None:
    require_matched(NAMES, run(wte={}, blocks={}))
    with pytest.raises(SettingsError, match=r"modules.hed: .* did you mean 'head'"):
        require_matched(NAMES, run(hed={}))
    with pytest.raises(
        SettingsError, match=r"modules.head: it is the nearest prefix of no tensor"
    ):
        require_matched(NAMES, run(head={}, **{"head.w": {}}))
