"""Modules with settings of their own: the nearest name prefix decides about a tensor.

``modules`` of the run's settings is a table of tables, by prefix::

    [modules."blocks.*.experts"]
    exchange = "nobody"             # stays with each learner

    [modules.wte]
    merge = "weighted-mean"         # embeddings take the plain mean
    uplink = "I8"

A prefix is whole parts of a dotted name; a part may hold ``*``. Of several that match the one with
the most parts is the nearest, of equally many the one with the most parts without ``*``.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from gradientmail.config import RunSettings, nearest, resolve
from gradientmail.errors import SettingsError

REST: Final = ""
"""The prefix of what no other prefix matches."""

OWN: Final = frozenset(
    {
        *("exchange", "merge", "merge_settings", "weights", "weights_settings"),
        *("outer", "outer_lr", "outer_settings", "outer_clip_norm"),
        *("outer_schedule", "outer_schedule_settings", "guard", "guard_settings", "clip_ratio"),
        *("alignment", "mixing", "uplink", "downlink", "published"),
    }
)
"""What a module may set for itself; ``exchange`` only to ``nobody``."""


def prefix_of(name: str, prefixes: Iterable[str]) -> str:
    """Return the prefix nearest to a tensor's canonical name; ``REST`` where none matches.

    >>> prefix_of("blocks.0.norm.weight", ["blocks", "blocks.*.norm", "head"])
    'blocks.*.norm'
    """
    parts = name.split(".")
    found = [prefix for prefix in prefixes if _matches(prefix.split("."), parts)]
    return max(found, key=_nearness, default=REST)


def settings_of(settings: RunSettings, prefix: str) -> RunSettings:
    """Return the settings that hold for the tensors of a prefix.

    Raises:
        SettingsError: the prefix's table holds what a module cannot set, or a value out of range.
    """
    if prefix == REST:
        return settings
    own, source = settings.modules[prefix], f"modules.{prefix}"
    if not isinstance(own, Mapping):
        raise SettingsError(f"{source} = {own!r}: write a table of settings")
    for key in own:
        if key.partition(".")[0] not in OWN:
            raise SettingsError(f"{source}: a module cannot set {key!r}{nearest(key, OWN)}")
    if own.get("exchange", "nobody") != "nobody":
        raise SettingsError(f"{source}: exchange = {own['exchange']!r}: only 'nobody' can be set")
    run: dict[str, Any] = {**msgspec.structs.asdict(settings), "modules": {}}
    return resolve(RunSettings, ("run", run), (source, own))


def stays_local(name: str, settings: RunSettings) -> bool:
    """Whether the tensor ``name`` stays with each learner."""
    prefix = prefix_of(name, settings.modules)
    return prefix != REST and settings.modules[prefix].get("exchange") == "nobody"


def require_matched(names: Iterable[str], settings: RunSettings) -> None:
    """Find a tensor for each prefix.

    Raises:
        SettingsError: a prefix is nearest to no tensor of the model.
    """
    names = list(names)
    idle = set(settings.modules) - {prefix_of(name, settings.modules) for name in names}
    if idle:
        lost = min(idle)
        raise SettingsError(
            f"modules.{lost}: it is the nearest prefix of no tensor of this model"
            f"{nearest(lost, {prefix for name in names for prefix in _prefixes(name)})}"
        )


def _matches(prefix: list[str], parts: list[str]) -> bool:
    return len(prefix) <= len(parts) and all(map(fnmatchcase, parts, prefix))


def _nearness(prefix: str) -> tuple[int, int, str]:
    parts = prefix.split(".")
    return len(parts), sum("*" not in part for part in parts), prefix


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
