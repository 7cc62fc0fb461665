"""Disks that have less room than they should."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def disk_that_ends_at(size_bytes: int) -> Iterator[None]:
    """No file can grow beyond ``size_bytes``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
