"""Names of learners, closers and runs: fit for a key, a file name and a person."""

import random
import re
import socket

from gradientmail.clock import fresh_nonce
from gradientmail.errors import SettingsError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def default_name(role: str, rng: random.Random) -> str:
    """Return a name from this host's, made unique."""
    host = re.sub(r"[^A-Za-z0-9]+", "-", socket.gethostname()).strip("-")
    return f"{host[:40] or role}-{fresh_nonce(rng)[:6]}"


def require_name(name: str) -> str:
    """Return ``name``.

    Raises:
        SettingsError: it does not fit in a key.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"name {name!r}: use 1 to 64 letters, digits, '-' and '_', beginning with one of the "
            "first two"
        )
    return name
