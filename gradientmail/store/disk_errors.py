"""What a file system's refusal means for us: stop, free space, or UNKNOWN."""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from gradientmail.errors import StoreAccessError, StoreFullError, StoreUnavailableError

_ADVICE = {
    errno.EACCES: "this user may not do that there; check owner and mode",
    errno.EPERM: "not permitted there; the file system must have hard links (FAT has none)",
    errno.EROFS: "the file system is mounted read-only",
    errno.EOPNOTSUPP: "the file system has no hard links; use another directory",
    errno.ENOSYS: "the file system has no hard links; use another directory",
    errno.ENOTDIR: "a file is where a directory must be",
    errno.EISDIR: "a directory is where an object must be",
    errno.ENAMETOOLONG: "the path is too long; use a shorter directory",
}


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` about ``path`` into the store's error; an unexpected one is UNKNOWN."""
    try:
        yield
    except OSError as error:
        reason = f"{path}: {error.strerror}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise StoreFullError(f"{reason}; free some space and start again") from error
        if error.errno in _ADVICE:
            raise StoreAccessError(f"{reason}; {_ADVICE[error.errno]}") from error
        if error.errno == errno.EMFILE:
            reason += "; allow this process more of them (ulimit -n)"
        raise StoreUnavailableError(reason) from error
