"""Peers, each in an environment of its own: set up once, or skipped with the reason.

``gradientmail`` 0.0.2 on PyPI is another project that shares our import name and needs Python
3.12, so it is never imported here: code that drives a peer runs by
``frame.in_child(..., python=python_of(peer))`` and imports nothing of ours: not even ``frame``.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frame import ROOT

ENVIRONMENTS = ROOT / "build" / "peers"
SETUP_S = 1200.0


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A project to compare with.

    Attributes:
        pythons: Interpreters that it runs on, the first found is taken.
        packages: What pip installs, in steps.
        check: Statement that works in a complete environment.
    """

    name: str
    pythons: Sequence[str]
    packages: Sequence[Sequence[str]]
    check: str


GRADIENTMAIL_002 = Peer(
    name="gradientmail 0.0.2",
    pythons=("python3.12", "python3.13", "python3.14"),
    packages=(("torch", "numpy", "gradientmail[s3]==0.0.2"),),
    check="import torch, boto3, gradientmail; gradientmail.Session",
)
TORCHFT = Peer(
    name="torchft-nightly",
    pythons=("python3.11", "python3.12", "python3.13"),
    packages=(("torch==2.13.0", "numpy"), ("torchft-nightly",)),
    check="import torchft, torchft.local_sgd",
)


class PeerError(RuntimeError):
    """A peer cannot be set up here; the message is the reason."""


@functools.cache
def python_of(peer: Peer) -> Path:
    """Return the interpreter of the peer's environment, set up on the first call.

    Raises:
        PeerError: it cannot be; the message says why, in one line.
    """
    home = ENVIRONMENTS / peer.name.replace(" ", "-")
    python = home / "bin" / "python"
    if python.exists() and not _fails([str(python), "-c", peer.check]):
        return python
    base = _interpreter(peer.pythons)
    print(f"setting up {peer.name} in {home.relative_to(ROOT)} (once, some minutes)", flush=True)
    commands = [[base, "-m", "venv", "--clear", str(home)]]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands += [[*pip, *step] for step in (("--upgrade", "pip"), *peer.packages)]
    commands.append([str(python), "-c", peer.check])
    for command in commands:
        if said := _fails(command):
            raise PeerError(f"{peer.name}: `{' '.join(command[1:])}` failed: {said}")
    return python


def _interpreter(names: Sequence[str]) -> str:
    """Return the first interpreter that starts: a launcher on the path may stand for nothing."""
    versions = Path.home() / ".pyenv" / "versions"
    for name in names:
        wanted = name.removeprefix("python")
        kept = sorted(versions.glob(f"{wanted}.*/bin/{name}")) if versions.is_dir() else []
        for found in (*map(str, kept), shutil.which(name)):
            if found and not _fails([found, "-c", "import venv"]):
                return found
    raise PeerError(f"no {' or '.join(names)} on this machine")


def _fails(command: Sequence[str]) -> str:
    """Run a command; return the last line it said if it failed, else nothing."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SETUP_S,
            check=False,
            cwd=ENVIRONMENTS,
            env=clean,  # or ours would be imported in its place
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return lines[-1].strip() if lines else f"status {done.returncode}"
