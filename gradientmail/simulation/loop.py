"""An event loop on virtual time: waiting costs nothing, and the order of events is fixed.

One thread, no sockets, no real clock. When nothing is ready the loop jumps to its next timer, so
coroutines that wait only for timers and for each other run unchanged, always in the same order.
"""

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: nothing would ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """``time()`` starts at 0.0 and moves only from one timer to the next."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._idle.now

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """There is one thread: no need to wake the loop through a socket."""
        return self.call_soon(callback, *args, context=context)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Return what ``main`` returns on a fresh virtual loop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


async def wait_until(at_s: float) -> None:
    """Return at virtual time ``at_s``, or at once when it is over."""
    loop = asyncio.get_running_loop()
    reached = asyncio.Event()
    loop.call_at(at_s, reached.set)
    await reached.wait()


def rng_of(*parts: object) -> random.Random:
    """Return the generator that ``parts`` name: the same on every machine and in every process."""
    return random.Random("/".join(map(str, parts)))  # noqa: S311


class _Idle(selectors.BaseSelector):
    """Watches nothing; asked to wait, it moves the time on instead."""

    def __init__(self) -> None:
        self.now = 0.0
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # noqa: ANN401
        key = selectors.SelectorKey(fileobj, 0, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:  # noqa: ANN401
        return self._map.pop(fileobj)

    def get_map(self) -> dict[Any, selectors.SelectorKey]:
        return self._map

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError("nothing is ready and no timer is set")
        self.now += max(timeout, 0.0)
        return []
