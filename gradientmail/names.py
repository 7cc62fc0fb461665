"""Names of learners, closers and runs: fit for a key, a file name and a person."""

import random
import re
import socket
from pathlib import Path

from gradientmail.clock import fresh_nonce
from gradientmail.config import NAME_PATTERN
from gradientmail.errors import SettingsError


def default_name(role: str, rng: random.Random) -> str:
    """Return a name from this host's, made unique."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")
    return f"{host[:40] or role}-{fresh_nonce(rng)[:6]}"


def learner_name(state_dir: Path | None, rng: random.Random) -> str:
    """Return a default name: the same at every start from one state directory, else a new one."""
    if state_dir is None:
        return default_name("learner", rng)
    return default_name("learner", random.Random(str(state_dir.resolve())))  # noqa: S311


def require_name(name: str) -> str:
    """Return ``name``.

    Raises:
        SettingsError: it does not fit in a key.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise SettingsError(
            f"name {name!r}: use 1 to 64 letters, digits, '-' and '_', beginning with one of the "
            "first two"
        )
    return name
