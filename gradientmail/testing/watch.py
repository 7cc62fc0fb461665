"""A watch on event loops: which callback computed for so long that the loop could not go on."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gradientmail.clock import thread_cpu_s


@dataclass
class Watch:
    """What was seen.

    Attributes:
        limit_s: CPU seconds that one callback may take.
        blocked: (CPU seconds, callback) of each that took longer.
    """

    limit_s: float
    blocked: list[tuple[float, str]] = field(default_factory=list)


@contextlib.contextmanager
def watched_loops(limit_s: float = 0.05) -> Iterator[Watch]:
    """Measure every callback of every event loop of this process.

    CPU seconds of the loop's own thread are counted, not the time that passes: a busy machine
    makes nothing slow, and a callback that sleeps is found by linters.

    Example:
        >>> with watched_loops() as watch:
        ...     asyncio.run(asyncio.sleep(0))
        >>> watch.blocked
        []
    """
    watch = Watch(limit_s)
    handles: Any = asyncio.Handle  # what it runs by has no public name
    run = handles._run  # noqa: SLF001

    def measured(handle: asyncio.Handle) -> None:
        began = thread_cpu_s()
        name = _name_of(handle)
        run(handle)
        took_s = thread_cpu_s() - began
        if took_s > limit_s:
            watch.blocked.append((took_s, name))

    handles._run = measured  # noqa: SLF001
    try:
        yield watch
    finally:
        handles._run = run  # noqa: SLF001


def _name_of(handle: Any) -> str:  # noqa: ANN401 - its callback has no public name
    """Return what the handle runs: of a task, where its coroutine stands."""
    callback = handle._callback  # noqa: SLF001
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        return str(callback)
    at = [f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in task.get_stack()]
    return " > ".join(at) or str(task.get_coro())
