"""Compiling kernels: numba's ``njit``, with the settings that keep their bits.

Kernels live at module level, so that the disk cache finds them again. No ``fastmath``: nothing is
contracted or reordered, each operation rounds as it is written, on every CPU.

numba's cache of a kernel is as old as the file it is in, whatever constants and kernels it takes
from others. So the cache lies in a folder named by what is in all of them: after an update of this
package, nobody runs half of the old one.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
import xxhash
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., Any])

_njit: Any = numba.njit
"""Without its types: a kernel keeps those it is written with."""

_config: Any = config


def kernel(function: Function) -> Function:
    """Compile ``function`` on its first call; cached on disk where there is a place to write.

    It runs without the GIL. Indices are not checked and must not be negative.
    """
    settings = {"nogil": True, "error_model": "numpy"}
    configured, _config.CACHE_DIR = _config.CACHE_DIR, str(cache_folder(_config.CACHE_DIR))
    try:
        compiled: Function = _njit(cache=True, **settings)(function)
    except RuntimeError:  # numba found no place to write
        compiled = _njit(**settings)(function)
    finally:
        _config.CACHE_DIR = configured
    return compiled


@cache
def cache_folder(configured: str = "", package: Path = Path(__file__).parent) -> Path:
    """Return where the kernels of exactly these sources are kept.

    Args:
        configured: What ``NUMBA_CACHE_DIR`` says; empty: beside the sources, or, where nobody may
            write there, in the user's cache.
        package: The folder of the sources.
    """
    sources = sorted(package.glob("*.py"))
    digest = xxhash.xxh3_64_hexdigest(b"".join(source.read_bytes() for source in sources))
    if configured:
        parent = Path(configured)
    elif os.access(package, os.W_OK):
        parent = package / "__pycache__"
    else:
        parent = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradientmail"
    return parent / f"kernels-{digest}"
