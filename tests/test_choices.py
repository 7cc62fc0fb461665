"""Choices by name: settings are checked by the class, other packages add to them."""

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from gradientmail import choices
from gradientmail.algorithms.outer import OUTERS, Adam, Nesterov, TorchOptimizer
from gradientmail.errors import SettingsError


class Lion(Nesterov):
    """One of another package."""


def install(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    added = [EntryPoint(name, f"{__name__}:Lion", choices.GROUP) for name in names]

    def found(*, group: str) -> list[EntryPoint]:
        return added if group == choices.GROUP else []

    monkeypatch.setattr(choices, "entry_points", found)
    monkeypatch.setattr(EntryPoint, "load", lambda _: Lion)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("adm", {}, r"unknown outer 'adm'; did you mean 'adam'"),
        ("zzz", {}, r"unknown outer 'zzz'; known: adagrad, adam, delayed-nesterov, .* yogi"),
        ("adam", {"lrr": 1.0}, r"outer = 'adam': it has no setting 'lrr'; did you mean 'lr'"),
        ("adam", {"beta1": 1.5}, r"outer = 'adam': beta1: Expected `float` < 1.0"),
        ("adam", {"beta1": "x"}, r"beta1: Expected `float`, got `str`"),
    ],
)
def test_a_mistake_is_answered_with_what_there_is(
    name: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        OUTERS.make(name, settings)


def test_a_value_is_described_by_what_makes_it_again() -> None:
    for value in (Adam(lr=0.5, beta2=0.9), TorchOptimizer("AdamW", {"lr": 0.1})):
        name, settings = OUTERS.describe(value)
        assert OUTERS.make(name, settings) == value


def test_an_entry_point_adds_a_choice_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "outer.lion", "merge.mine")
    assert "lion" in OUTERS.names()
    assert "mine" not in OUTERS.names()
    assert OUTERS.make("lion", {"momentum": 0.5}) == Lion(momentum=0.5)
    assert OUTERS.describe(Lion(lr=0.2)) == ("lion", {"lr": 0.2, "momentum": 0.9})


def test_another_package_cannot_replace_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "outer.adam")
    assert type(OUTERS.make("adam", {})) is Adam


def test_a_class_without_a_name_is_refused_because_no_other_process_could_make_it() -> None:
    with pytest.raises(SettingsError, match=r"Lion has no name .* entry point outer.NAME"):
        OUTERS.describe(Lion())
