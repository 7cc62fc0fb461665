"""Settings gathered from where a person may write them: flags, environment, run.toml."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradientmail.algorithms.presets import DEFAULT, preset
from gradientmail.config import NodeSettings, RunSettings, from_environment, resolve
from gradientmail.errors import SettingsError
from gradientmail.protocol.strategy import strategy_settings

ENVIRONMENT = "environment"


def run_settings(
    config: Path | None,
    assignments: Sequence[str],
    environ: Mapping[str, str],
    strategy: Path | None = None,
) -> RunSettings:
    """Return the settings of a run to create, of which ``assignments`` (key=value) are strongest.

    The preset that they default from may be named in any of the places; ``strategy`` is a document
    that stands for settings, weaker than all others.

    Raises:
        SettingsError: a key is unknown, or a value is out of its range; the message says where.
    """
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (str(strategy), _strategy(strategy)),
        (str(config), read_config(config)[0]),
        (ENVIRONMENT, from_environment(RunSettings, environ)),
        ("--set", assigned(assignments)),
    ]
    named = [values["algorithm"] for _, values in layers if "algorithm" in values]
    name = str([DEFAULT, *named][-1])
    return resolve(RunSettings, (f"preset {name}", preset(name)), *layers)


def node_settings(
    config: Path | None, flags: Mapping[str, object], environ: Mapping[str, str]
) -> NodeSettings:
    """Return the settings of this process; a flag that is None was not given.

    Raises:
        SettingsError: as for ``run_settings``.
    """
    return resolve(
        NodeSettings,
        (f"{config} [node]", read_config(config)[1]),
        (ENVIRONMENT, from_environment(NodeSettings, environ)),
        ("flag", {name: value for name, value in flags.items() if value is not None}),
    )


def _strategy(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    try:
        return strategy_settings(path.read_bytes())
    except (OSError, SettingsError) as error:
        raise SettingsError(f"{path}: {_reason(error)}") from error


def read_config(config: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the run's and the node's settings of a ``run.toml``; nothing without one.

    Raises:
        SettingsError: it cannot be read, or is no TOML.
    """
    if config is None:
        return {}, {}
    try:
        table = tomllib.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{config}: {_reason(error)}") from error
    node = table.pop("node", {})
    if not isinstance(node, dict):
        raise SettingsError(f"{config}: node must be a table: write [node] on a line of its own")
    return table, node


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def assigned(assignments: Sequence[str]) -> dict[str, str]:
    """Return the values that ``key=value`` flags assign.

    Raises:
        SettingsError: a flag has no equals sign.
    """
    values = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise SettingsError(f"--set {assignment}: write --set key=value")
        values[key.strip()] = value.strip()
    return values
