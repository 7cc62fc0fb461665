"""A run's model as one safetensors file, under the names its user gave the tensors."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from gradientmail.algorithms.aggregator import PARAMS
from gradientmail.closer.spool import Spool
from gradientmail.codecs.layout import chunks
from gradientmail.codecs.streaming import FileSource, PayloadReader
from gradientmail.errors import PayloadError, RecordError, SettingsError
from gradientmail.learner.parameters import named_values, require_same_model
from gradientmail.operations.gossiping import mean_posted
from gradientmail.records.manifest import TensorSpec
from gradientmail.run import Run, Version, open_run
from gradientmail.store.base import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        versions: Of each fragment.
        learners: Whose mean it is, in a run without a closer.
    """

    versions: tuple[int, ...]
    learners: tuple[str, ...] = ()


async def export_run(
    store: Store,
    out: Path,
    *,
    version: int | None = None,
    learner: str | None = None,
    model: nn.Module | None = None,
) -> Exported:
    """Write the model to ``out``, replacing it at once.

    ``version``: the same version of every fragment; None takes the newest of each. What the run
    does not exchange (frozen parameters, integer and local buffers) comes from ``model``; without
    one the file has only what is exchanged. Names are those of the bare model, in no wrapper.
    Tied tensors are written under each of their names, so that ``load_state_dict`` is content.

    Without a closer the model is the mean of what learners posted last, or what ``learner`` did.

    Raises:
        RunNotFoundError: there is no run.
        SettingsError: there is no such version or learner, or it was swept; ``out`` cannot be
            written, or learners exchange nothing.
        ContractError: ``model`` is not the run's.
        RecordError: a payload is damaged.

    Example:
        >>> await export_run(store, Path("model.safetensors"), model=model)
        >>> model.load_state_dict(safetensors.torch.load_file("model.safetensors"))
        <All keys matched successfully>
    """
    with _writing(out):
        _require_file_place(out)
    run = await open_run(store)
    _require_common_model(run, learner)
    local = named_values(model) if model else {}
    if model:
        require_same_model(run.manifest, model)
    with _writing(out), TemporaryDirectory(dir=out.parent, prefix=".gradientmail-") as scratch:
        spool = Spool(Path(scratch), store)
        if run.manifest.settings.exchange == "gossip":
            exported, values = await _posted(run, spool, version, learner)
        else:
            exported, values = await _committed(run, spool, version)
        part = Path(scratch) / "export"
        save_file(_named(run.manifest.tensors, values, local), part, _metadata(run, exported))
        part.replace(out)
    return exported


# -- what to export -------------------------------------------------------------------------


async def _versions(run: Run, number: int | None) -> list[Version]:
    newest = await run.newest_of_all()
    if number is None:
        return newest
    least = min(version.number for version in newest)
    if not 0 <= number <= least:
        raise SettingsError(
            f"version {number} of every fragment: choose 0 to {least}, the newest that all have"
        )
    found = [await run.version(version.fragment, number) for version in newest]
    return [version for version in found if version is not None]


async def _committed(
    run: Run, spool: Spool, number: int | None
) -> tuple[Exported, dict[str, Tensor]]:
    versions = await _versions(run, number)
    values: dict[str, Tensor] = {}
    for version in versions:
        values |= _values(run, version.fragment, await _flat(run, version, spool))
    return Exported(tuple(version.number for version in versions)), values


async def _posted(
    run: Run, spool: Spool, number: int | None, learner: str | None
) -> tuple[Exported, dict[str, Tensor]]:
    numbers: list[int] = []
    learners: set[str] = set()
    values: dict[str, Tensor] = {}
    for p in range(len(run.layouts)):
        mean = await mean_posted(run, p, version=number, learner=learner)
        values |= _values(run, p, mean.params if mean else await _flat(run, run.origin(p), spool))
        numbers.append(mean.version if mean else 0)
        learners |= mean.learners if mean else set()
    return Exported(tuple(numbers), tuple(sorted(learners))), values


def _values(run: Run, fragment: int, flat: Tensor) -> dict[str, Tensor]:
    """Return a fragment's values by canonical name, in the dtypes of the contract."""
    specs = {spec.name: spec for spec in run.manifest.tensors}
    values: dict[str, Tensor] = {}
    for slot in run.layouts[fragment].slots:
        spec = specs[slot.name]
        value = flat[slot.offset : slot.offset + slot.numel].view(spec.shape)
        values[slot.name] = value.to(getattr(torch, spec.dtype), copy=True)
    return values


async def _flat(run: Run, version: Version, spool: Spool) -> Tensor:
    """Return the published parameters of one fragment as float32."""
    try:
        path = await spool.payload(version.params)
    except RecordError as error:
        oldest = await run.mailbox.newest_boundary(version.fragment) + 1
        if version.number >= oldest:
            raise
        raise SettingsError(
            f"version {version.number} of fragment {version.fragment} was swept away; "
            f"the oldest that is kept is {oldest}"
        ) from error
    layout = run.layouts[version.fragment]
    flat = torch.empty(layout.numel)
    try:
        with FileSource(path) as source:
            algorithm = run.algorithms[version.fragment]
            reader = PayloadReader(algorithm.params_format(layout.numel), source)
            for start, stop in chunks(0, layout.numel):
                reader.read(PARAMS, start, stop, out=flat[start:stop])
    except PayloadError as error:
        raise RecordError(version.params.key, str(error)) from error
    spool.drop(version.params.key)
    return flat


def _require_common_model(run: Run, learner: str | None) -> None:
    exchange = run.manifest.settings.exchange
    if exchange == "nobody":
        raise SettingsError(
            f"this run has exchange = {exchange!r}: its learners have no model in common; save "
            "one where it is trained, with torch.save or safetensors"
        )
    if exchange == "closer" and learner is not None:
        raise SettingsError(
            "this run has one model, what its closer committed: leave out the learner"
        )


# -- the file -------------------------------------------------------------------------------


def _named(
    specs: Sequence[TensorSpec], values: Mapping[str, Tensor], local: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return what the file holds: an independent copy for each name, as the format wants it."""
    by_canonical = dict(values)
    for spec in specs:
        if spec.alias is not None and spec.alias in values:
            by_canonical[spec.name] = values[spec.alias].clone()
    if local:
        return {name: by_canonical.get(name, own) for name, own in local.items()}
    if left_out := [spec.name for spec in specs if spec.name not in by_canonical]:
        log.warning(
            "left out %d tensors that the run does not exchange (%s ...): "
            "export with the program to have them",
            len(left_out),
            ", ".join(left_out[:3]),
        )
    return by_canonical


def _metadata(run: Run, exported: Exported) -> dict[str, str]:
    said = {"versions": ",".join(map(str, exported.versions))}
    if exported.learners:
        said["learners"] = ",".join(exported.learners)
    return {"format": "pt", "run": run.name, **said}


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Say of the disk's refusals that it is ``out`` that cannot be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsError(
            f"{out} cannot be written: {reason}; free some space there, get the right to write "
            "there, or export elsewhere"
        ) from error


def _require_file_place(out: Path) -> None:
    if out.is_dir():
        raise SettingsError(
            f"{out} is a directory; name a file in it, such as {out}/model.safetensors"
        )
    if not out.parent.is_dir():
        raise SettingsError(f"{out.parent} is no directory: create it, or export elsewhere")
