"""Reading ``FLEET.toml``: every mistake is one line that says where and what to write instead."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from gradientmail.algorithms.presets import DEFAULT, preset
from gradientmail.config import RunSettings, nearest, resolve
from gradientmail.errors import SettingsError
from gradientmail.forecast.fleet import Closers, Fleet, Learners, Model, Prices, StoreSpec
from gradientmail.protocol.plans import TensorSize

S = TypeVar("S", bound=msgspec.Struct)

_EVERY_WAY = 1000.0
"""Mbit/s of a closer of which nothing is said: a machine in a data centre."""


def read_fleet(path: Path) -> Fleet:
    """Return the fleet that the file describes.

    Raises:
        SettingsError: it cannot be read, a key is unknown or missing, a value is out of range, or
            two contradict each other; the message names the table and the key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error
    return fleet_of(content, source=str(path))


def fleet_of(content: Mapping[str, Any], *, source: str) -> Fleet:
    """Return the fleet that the tables of a file describe; see ``read_fleet``."""
    _require_known(Fleet, content, source)
    groups = content.get("learners", [])
    if not isinstance(groups, list) or not groups:
        raise SettingsError(f"{source}: no learners: write at least one [[learners]] table")
    store = dict(_table(content, "store", source))
    prices = _table(store, "prices", f"{source} [store]")
    store["prices"] = _struct(Prices, prices, f"{source} [store.prices]")
    known = {
        "model": _model(_table(content, "model", source), f"{source} [model]"),
        "learners": tuple(_learners(group, source) for group in groups),
        "closer": _closers(_table(content, "closer", source), f"{source} [closer]"),
        "store": _struct(StoreSpec, store, f"{source} [store]"),
    }
    fleet = _struct(Fleet, {**content, **known}, source)
    _require_unlike_names(fleet, source)
    if fleet.hours is None and fleet.rounds is None:
        raise SettingsError(f"{source}: how long? write hours = 24, or rounds = 200, at the top")
    settings_side_by_side(fleet, source=source)
    return fleet


def settings_side_by_side(
    fleet: Fleet, presets: Sequence[str] = (), *, source: str = "FLEET.toml"
) -> dict[str, RunSettings]:
    """Return the settings to forecast, by name: of ``presets``, else of those the fleet names.

    Raises:
        SettingsError: a preset or a setting is unknown, or a value is out of its range.
    """
    names = presets or fleet.presets or (str(fleet.run.get("algorithm", DEFAULT)),)
    own = {key: value for key, value in fleet.run.items() if key != "algorithm"}
    return {
        name: resolve(RunSettings, (f"preset {name}", preset(name)), (f"{source} [run]", own))
        for name in names
    }


def tensors_of(model: Model) -> tuple[TensorSize, ...]:
    """Return the tensors of ``model``, in its order: an embedding, blocks, a final norm.

    >>> [tensor.numel for tensor in tensors_of(Model(parameters=100, blocks=3))]
    [34, 33, 33]
    """
    if model.width is None:
        total, blocks = model.parameters or 0, model.blocks
        even, rest = divmod(total, blocks)
        return tuple(
            TensorSize(f"blocks.{index}.weight", even + (index < rest)) for index in range(blocks)
        )
    width = model.width
    parts = {"attention.qkv": 3, "attention.out": 1, "mlp.up": 4, "mlp.down": 4}
    blocks_of = [
        TensorSize(f"blocks.{index}.{part}.weight", times * width**2)
        for index in range(model.blocks)
        for part, times in parts.items()
    ]
    embedding = [TensorSize("embedding.weight", model.vocabulary * width)]
    return (*(embedding if model.vocabulary else []), *blocks_of, TensorSize("norm.weight", width))


# -- tables ---------------------------------------------------------------------------------


def _model(values: Mapping[str, Any], source: str) -> Model:
    model = _struct(Model, values, source)
    if (model.parameters is None) == (model.width is None):
        raise SettingsError(
            f"{source}: write either parameters = 1_000_000_000, or the shape: width, blocks and "
            "vocabulary"
        )
    return model


def _learners(values: object, source: str) -> Learners:
    where = f"{source} [[learners]]"
    if not isinstance(values, dict):
        raise SettingsError(f"{where}: must be a table")
    where += f" {values['name']!r}" if "name" in values else ""
    group = _struct(Learners, values, where)
    _require_one_unit(values, where, required=True)
    if group.leaves_h is not None and group.leaves_h <= group.joins_h:
        raise SettingsError(f"{where}: leaves_h = {group.leaves_h} is not after joins_h")
    return group


def _closers(values: Mapping[str, Any], source: str) -> Closers:
    _require_one_unit(values, source, required=False)
    given = dict(values)
    for way in ("up", "down"):
        if not any(f"{way}_{unit}" in values for unit in ("mbit_s", "mbyte_s")):
            given[f"{way}_mbit_s"] = _EVERY_WAY
    return _struct(Closers, given, source)


def _require_one_unit(values: Mapping[str, Any], source: str, *, required: bool) -> None:
    for way in ("up", "down"):
        bits, in_bytes = f"{way}_mbit_s", f"{way}_mbyte_s"
        if bits in values and in_bytes in values:
            raise SettingsError(f"{source}: {bits} and {in_bytes} say the same thing: write one")
        if required and bits not in values and in_bytes not in values:
            raise SettingsError(f"{source}: {bits} is missing (10^6 bits a second), or {in_bytes}")


def _require_unlike_names(fleet: Fleet, source: str) -> None:
    names = [group.name for group in fleet.learners]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{source}: two [[learners]] are named {name!r}: rename one")


def _table(content: Mapping[str, Any], key: str, source: str) -> Mapping[str, Any]:
    found = content.get(key, {})
    if not isinstance(found, dict):
        raise SettingsError(f"{source}: {key} must be a table: write [{key}] on a line of its own")
    return found


def _require_known(kind: type[msgspec.Struct], values: Mapping[str, Any], source: str) -> None:
    for key in values:
        if key not in kind.__struct_fields__:
            known = nearest(key, kind.__struct_fields__)
            raise SettingsError(f"{source}: unknown key {key!r}{known}")


def _struct(kind: type[S], values: Mapping[str, Any], source: str) -> S:
    """Return ``values`` as a ``kind``; one value at a time, so that a mistake is named."""
    _require_known(kind, values, source)
    for field in msgspec.structs.fields(kind):
        if field.name not in values:
            if field.required:
                raise SettingsError(f"{source}: {field.name} is missing")
            continue
        value = values[field.name]
        if isinstance(value, msgspec.Struct) or _holds_structs(value):
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as exc:
            raise SettingsError(
                f"{source}: {field.name} = {value!r}: {_reason(field.type, exc)}"
            ) from exc
    return kind(**{key: _typed(kind, key, value) for key, value in values.items()})


def _holds_structs(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, msgspec.Struct) for one in value)


def _typed(kind: type[msgspec.Struct], key: str, value: object) -> object:
    """Return ``value`` in the type of its field: TOML's 1 is a float where one is wanted."""
    if isinstance(value, msgspec.Struct) or _holds_structs(value):
        return value
    (hint,) = (field.type for field in msgspec.structs.fields(kind) if field.name == key)
    return msgspec.convert(value, hint)


def _reason(hint: object, exc: msgspec.ValidationError) -> str:
    if hint is bool or bool in get_args(hint):
        return "write true or false"
    return str(exc).partition(" - at ")[0]
