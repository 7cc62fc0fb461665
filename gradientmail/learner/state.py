"""What a learner keeps on its own disk so that a restart goes on where it was.

A state is a tree of plain values and tensors. It travels as one safetensors file: the tensors as
its entries, everything else as JSON in its metadata, so reading one runs no code, as unpickling
would. The directory holds two generations:

    lock                                         held while a learner uses the directory
    name                                         the learner's, where nobody chose one
    {generation:010d}-{digest}.safetensors       digest: xxh3_128 of the file, 32 hex digits

A file appears under its name by a rename once it is on the disk, and is read only when its bytes
have the digest in its name. So a kill or a full disk at any moment leaves a generation to load.
"""

import base64
import fcntl
import json
import logging
import os
import random
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import safetensors.torch
import torch
import xxhash
from safetensors import SafetensorError
from torch import Tensor

from gradientmail.errors import SettingsError, StateNotSavedError

log = logging.getLogger(__name__)

FORMAT = "state/2"
READ_BYTES = 1 << 20


# -- a tree as JSON and tensors -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class State:
    """A packed tree: JSON text, and the tensors it refers to by name, on the CPU."""

    tree: str
    tensors: dict[str, Tensor]


def pack(tree: object) -> State:
    """Return a snapshot of ``tree``: later changes to its tensors do not reach it.

    The tree is made of None, bool, int, float, str, bytes, tensors and numpy arrays, in lists,
    tuples and dicts whose keys are str or int. A subclass comes back as its base: an OrderedDict
    as a dict; and numpy's numbers as Python's.

    Raises:
        SettingsError: something else is in the tree; the message says where.
    """
    tensors: dict[str, Tensor] = {}
    return State(json.dumps(_node(tree, "state", tensors)), tensors)


def unpack(state: State) -> Any:  # noqa: ANN401 - the tree that was packed
    """Return the tree that was packed; its tensors are those of ``state``."""
    return _value(json.loads(state.tree), state.tensors)


def _node(value: object, path: str, tensors: dict[str, Tensor]) -> object:
    """Return ``value`` as JSON: what JSON lacks becomes an object of one key, its type."""
    match value:
        case None | bool() | int() | float() | str():
            node: object = value
        case np.bool_() | np.integer():
            node = value.item()
        case np.floating():
            node = float(value)
        case bytes():
            node = {"bytes": base64.b64encode(value).decode()}
        case list():
            node = [_node(item, f"{path}[{i}]", tensors) for i, item in enumerate(value)]
        case tuple():
            node = {"tuple": _node(list(value), path, tensors)}
        case dict() if all(type(key) in (str, int) for key in value):
            node = {"dict": [[k, _node(v, f"{path}[{k!r}]", tensors)] for k, v in value.items()]}
        case np.ndarray() if value.dtype.kind in "biuf":
            node = {"array": _node(torch.from_numpy(value.copy()), path, tensors)}
        case Tensor() if value.layout == torch.strided:
            name = str(len(tensors))
            tensors[name] = value.detach().to("cpu", copy=True).contiguous()
            node = {"tensor": name}
        case _:
            raise SettingsError(
                f"{path} is {type(value).__name__}, which cannot be saved; use None, numbers, "
                "strings, bytes, dense tensors, and lists, tuples and dicts (keys: str or int)"
            )
    return node


def _value(node: Any, tensors: dict[str, Tensor]) -> object:  # noqa: ANN401 - JSON
    match node:
        case list():
            value: object = [_value(item, tensors) for item in node]
        case {"bytes": text}:
            value = base64.b64decode(text)
        case {"tuple": items}:
            value = tuple(_value(item, tensors) for item in items)
        case {"dict": items}:
            value = {key: _value(item, tensors) for key, item in items}
        case {"array": {"tensor": name}}:
            value = tensors[name].numpy()
        case {"tensor": name}:
            value = tensors[name]
        case _:
            value = node
    return value


# -- the directory --------------------------------------------------------------------------


class StateDir:
    """A learner's state directory. One process uses it at a time; load before saving.

    Raises:
        SettingsError: the directory cannot be used, or another learner is using it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._good: Path | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path / "lock")
        except OSError as error:
            raise SettingsError(f"state directory {path} cannot be used: {error}") from error

    def load(self) -> State | None:
        """Return the newest intact state; None when there is none."""
        for path in reversed(self._generations()):
            data = path.read_bytes()
            if xxhash.xxh3_128_hexdigest(data) == _digest_of(path):
                self._good = path
                return _parse(path, data)
            log.warning("%s is damaged; falling back to the state before it", path)
        return None

    def save(self, state: State) -> None:
        """Write ``state`` durably; the one before it stays, those before that are removed.

        Raises:
            StateNotSavedError: the disk is full or failing; earlier states are intact.
        """
        temporary = self._path / "next.tmp"
        try:
            self._write(temporary, state)
        except (OSError, SafetensorError) as error:
            temporary.unlink(missing_ok=True)
            raise StateNotSavedError(
                f"the state was not saved; {self._path} still holds the one before ({error})"
            ) from error

    def close(self) -> None:
        """Let another process use the directory."""
        self._lock.close()

    def _write(self, temporary: Path, state: State) -> None:
        metadata = {"format": FORMAT, "tree": state.tree}
        safetensors.torch.save_file(state.tensors, temporary, metadata)
        digest = _synced_digest(temporary)
        before = self._generations()
        generation = 1 + max((_generation_of(path) for path in before), default=0)
        path = self._path / f"{generation:010d}-{digest}.safetensors"
        temporary.rename(path)
        _sync_directory(self._path)
        for old in before:
            if old != self._good:
                old.unlink()
        self._good = path

    def _generations(self) -> list[Path]:
        """Every file of a state, oldest first."""
        return sorted(self._path.glob("[0-9]*-*.safetensors"), key=_generation_of)


def _generation_of(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _digest_of(path: Path) -> str:
    return path.stem.partition("-")[2]


def _parse(path: Path, data: bytes) -> State:
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    if metadata["format"] != FORMAT:
        raise SettingsError(
            f"{path} has format {metadata['format']!r}, this gradientmail reads {FORMAT!r}; "
            "use the version that wrote it, or another state directory"
        )
    return State(metadata["tree"], safetensors.torch.load(data))


def _synced_digest(path: Path) -> str:
    """Return the digest of the file's bytes, once they are on the disk."""
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while chunk := file.read(READ_BYTES):
            digest.update(chunk)
        os.fsync(file.fileno())
    return digest.hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- the lock -------------------------------------------------------------------------------

_held: "weakref.WeakSet[TextIO]" = weakref.WeakSet()


def _locked(path: Path) -> TextIO:
    """Return the lock file, locked, with our process id in it."""
    file = path.open("a+", encoding="ascii")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        raise SettingsError(
            f"state directory {path.parent} is in use by process {holder}; "
            "give each learner a directory of its own"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    _held.add(file)
    return file


def _release_in_child() -> None:
    """Drop the locks a forked child inherited: a data loader's process may outlive its learner."""
    for file in list(_held):
        file.close()


os.register_at_fork(after_in_child=_release_in_child)


# -- chance ---------------------------------------------------------------------------------


def rng_state(device: torch.device) -> dict[str, object]:
    """Return the state of every global generator a program may draw from."""
    state: dict[str, object] = {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_rng(state: dict[str, Any], device: torch.device) -> None:
    """Put the generators into ``state``; a state taken without this device leaves the device's."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
