"""Real text that is on every machine: the source of the Python standard library, as bytes."""

import os
import sysconfig
from pathlib import Path
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
HELD_OUT_ONE_IN = 20
LIMIT_BYTES = 16_000_000


class Text(NamedTuple):
    """Bytes of whole files one after another, uint8, in the order of their paths."""

    train: Tensor
    held_out: Tensor


def library_source() -> Text:
    """Return the standard library's source, at most ``LIMIT_BYTES``; one file in 20 is held out.

    Which files are held out follows from their paths, so every machine holds out the same ones.
    """
    root = Path(sysconfig.get_path("stdlib"))
    train, held_out = bytearray(), bytearray()
    for name in source_files(root):
        data = (root / name).read_bytes()
        if len(train) + len(held_out) + len(data) > LIMIT_BYTES:
            break
        if is_held_out(name):
            held_out += data
        else:
            train += data
    return Text(*(torch.frombuffer(part, dtype=torch.uint8) for part in (train, held_out)))


def source_files(root: Path) -> list[str]:
    """Return the paths, relative to ``root``, of the library's own modules, sorted."""
    names: list[str] = []
    for folder, inner, files in os.walk(root):
        inner[:] = set(inner) - SKIPPED
        here = Path(folder).relative_to(root)
        names += [(here / file).as_posix() for file in files if file.endswith(".py")]
    return sorted(names)


def is_held_out(name: str) -> bool:
    """Tell whether the file with the relative path ``name`` is kept from training."""
    return xxhash.xxh3_64_intdigest(name.encode()) % HELD_OUT_ONE_IN == 0
