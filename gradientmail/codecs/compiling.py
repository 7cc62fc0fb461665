"""Compiling kernels: numba's ``njit``, with the settings that keep their bits.

Kernels live at module level, so that the disk cache finds them again. No ``fastmath``: nothing is
contracted or reordered, each operation rounds as it is written, on every CPU.

The disk cache of a kernel is as old as the file it is in, whatever it calls from another: whoever
changes ``rounding`` touches ``encoding`` too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

_njit: Any = numba.njit
"""Without its types: a kernel keeps those it is written with."""


def kernel(function: Function) -> Function:
    """Compile ``function`` on its first call; cached on disk where there is a place to write.

    It runs without the GIL. Indices are not checked and must not be negative.
    """
    settings = {"nogil": True, "error_model": "numpy"}
    try:
        compiled: Function = _njit(cache=True, **settings)(function)
    except RuntimeError:  # neither beside the package, nor in the user's cache folder
        compiled = _njit(**settings)(function)
    return compiled
