"""Names of learners, closers and runs: fit for a key, a file name and a person."""

import contextlib
import os
import random
import re
import socket
from pathlib import Path

from gradientmail.clock import fresh_nonce
from gradientmail.config import NAME_PATTERN, name_advice
from gradientmail.errors import SettingsError


def default_name(role: str, rng: random.Random) -> str:
    """Return a name from this host's, made unique."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")
    return f"{host[:40] or role}-{fresh_nonce(rng)[:6]}"


def learner_name(state_dir: Path | None, rng: random.Random) -> str:
    """Return a default name; one that a state directory keeps for every start from there.

    Raises:
        SettingsError: the directory cannot be used, or the name in it is none.
    """
    if state_dir is None:
        return default_name("learner", rng)
    path = state_dir / "name"
    try:
        if not path.exists():
            _create(path, default_name("learner", rng))
        return require_name(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"state directory {state_dir} cannot be used: {error}") from error


def _create(path: Path, name: str) -> None:
    """Write a whole file or none, and leave the one that another process was first to write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{name}.tmp")
    with temporary.open("w", encoding="ascii") as file:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        path.hardlink_to(temporary)
    temporary.unlink()


def require_name(name: str) -> str:
    """Return ``name``.

    Raises:
        SettingsError: it does not fit in a key.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise SettingsError(f"name {name!r}: {name_advice(name)}")
    return name
