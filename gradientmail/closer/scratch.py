"""A directory for one process's spool, gone with the process: also after a kill, at a next start.

Each holds a file that its process keeps locked. The kernel drops the lock with the process, so a
directory whose lock can be had belongs to nobody. No process id is looked at: they are used again.
"""

import contextlib
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "gradientmail-spool-"
LOCK = "lock"


@contextlib.contextmanager
def scratch_directory(parent: Path | None) -> Iterator[Path]:
    """Make a directory in ``parent``, by default the system's for temporary files; remove it.

    First it removes what killed processes left behind there.
    """
    place = parent or Path(tempfile.gettempdir())
    place.mkdir(parents=True, exist_ok=True)
    _remove_orphans(place)
    new = Path(tempfile.mkdtemp(prefix=".gradientmail-", dir=place))
    with (new / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        own = new.rename(place / f"{PREFIX}{new.name.rpartition('-')[2]}")  # only now it is seen
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)


def _remove_orphans(place: Path) -> None:
    """Remove every directory whose lock nobody holds; another user's cannot be opened."""
    for path in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError), (path / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
