"""Named choices: what a setting such as ``outer = "adam"`` stands for.

A choice is a class whose fields are its settings, with their ranges: so a table in ``run.toml`` is
checked by the class itself, and a value made in Python needs no name. Others add choices of their
own by an entry point of the group ``gradientmail.algorithms``, named ``KIND.NAME``::

    [project.entry-points."gradientmail.algorithms"]
    "outer.lion" = "mypackage.lion:Lion"

Every process of a run needs the package then: an unknown name is an error, never a fallback.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, TypeVar

import msgspec

from gradientmail.config import nearest
from gradientmail.errors import SettingsError

GROUP: Final = "gradientmail.algorithms"
"""The entry-point group in which other packages name their choices."""


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way to do something; its fields are its settings."""


T = TypeVar("T")


@dataclass(frozen=True)
class Choices(Generic[T]):
    """Every choice of one kind.

    Args:
        kind: The setting that names one, such as ``outer``.
        built_in: Those of this package, by name.
    """

    kind: str
    built_in: Mapping[str, type[T]]

    def names(self) -> list[str]:
        """Return every name there is here, those of other packages too."""
        return sorted({*self.built_in, *self._others()})

    def make(self, name: str, settings: Mapping[str, Any]) -> T:
        """Return the choice ``name`` with its settings.

        Raises:
            SettingsError: there is none of that name here, or a setting is not one of its own or
                out of its range; the message says what there is.
        """
        chosen = self.chosen(name)
        try:
            return msgspec.convert(dict(settings), chosen)
        except msgspec.ValidationError as error:
            raise SettingsError(f"{self.kind} = {name!r}: {_reason(chosen, error)}") from error

    def chosen(self, name: str) -> type[T]:
        """Return the class behind ``name``.

        Raises:
            SettingsError: there is none here.
        """
        if name in self.built_in:
            return self.built_in[name]
        others = self._others()
        if name not in others:
            raise SettingsError(
                f"unknown {self.kind} {name!r}{nearest(name, self.names())}; another package adds "
                f"one by an entry point {self.kind}.NAME of the group {GROUP}"
            )
        found: type[T] = others[name].load()
        return found

    def describe(self, value: T) -> tuple[str, dict[str, Any]]:
        """Return the name and the settings by which every other process makes ``value`` again.

        Raises:
            SettingsError: its class has no name.
        """
        known = {**self.built_in, **{name: one.load() for name, one in self._others().items()}}
        name = next((name for name, kind in known.items() if kind is type(value)), None)
        if name is None:
            raise SettingsError(
                f"{self.kind}: {type(value).__name__} has no name that other processes know: give "
                f"it an entry point {self.kind}.NAME of the group {GROUP}"
            )
        settings: dict[str, Any] = msgspec.to_builtins(value)
        return name, settings

    def _others(self) -> dict[str, EntryPoint]:
        """Return what other packages that are installed here add."""
        return {
            name: one
            for one in entry_points(group=GROUP)
            for kind, _, name in [one.name.partition(".")]
            if kind == self.kind
        }


def _reason(chosen: type, error: msgspec.ValidationError) -> str:
    """Say which setting is wrong in words of our files; a choice's own words stay as they are."""
    said, _, path = str(error).partition(" - at `$")
    if "required field" in said:
        return f"it needs the setting {said.split('`')[1]!r}"
    if "unknown field" in said:
        unknown = said.split("`")[1]
        fields: tuple[str, ...] = getattr(chosen, "__struct_fields__", ())
        return f"it has no setting {unknown!r}{nearest(unknown, fields)}"
    name = path.rstrip("`").lstrip(".")
    return f"{name}: {said}" if name else said
