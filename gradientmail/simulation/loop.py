"""An event loop on virtual time: waiting costs nothing, and the order of events is fixed.

One thread, no sockets, no real clock. When nothing is ready the loop jumps to its next timer, so
coroutines that wait only for timers and for each other run unchanged, always in the same order.
It knows nothing else of what an event loop can do, and is three times as fast as one that does.
"""

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack, cast

from gradientmail.logs import get_logger

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DeadlockError(RuntimeError):
    """Nothing is ready and no timer is set: nothing would ever happen again."""


class VirtualLoop:
    """``time()`` starts at 0.0 and moves only from one timer to the next.

    Timers of one instant fire in the order in which they were set. Of ``asyncio``'s event loops
    it has what tasks, futures and what waits for them ask of one.
    """

    get_debug = bool
    """No. Every future asks, and a method of Python's would cost as much as the future."""

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: deque[_Call] = deque()
        self._timers: list[tuple[float, int, _Call]] = []
        self._count = 0
        self._loop = cast("asyncio.AbstractEventLoop", self)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._now

    # -- what coroutines ask of it -----------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """See ``asyncio.AbstractEventLoop.call_soon``."""
        call: Any = _Call((callback, args, context))
        self._ready.append(call)
        handle: asyncio.Handle = call
        return handle

    call_soon_threadsafe = call_soon
    """There is one thread."""

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See ``asyncio.AbstractEventLoop.call_later``."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See ``asyncio.AbstractEventLoop.call_at``."""
        call: Any = _Call((callback, args, context))
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, call))
        handle: asyncio.TimerHandle = call
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """See ``asyncio.AbstractEventLoop.create_future``."""
        return asyncio.Future(loop=self._loop)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:  # noqa: ANN401
        """See ``asyncio.AbstractEventLoop.create_task``."""
        return asyncio.Task(coro, loop=self._loop, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Say what nobody has asked for."""
        get_logger("gradientmail.simulation").error("%s", context)

    # -- running -----------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Return what ``main`` returns, and end every task that is left."""
        asyncio._set_running_loop(self._loop)  # noqa: SLF001 - as every loop does
        try:
            task = self.create_task(main)
            while not task.done():
                if not self._ready:
                    self._advance()
                self._run_ready()
            result: T = task.result()
            return result
        finally:
            for left in asyncio.all_tasks(self._loop):
                left.cancel()
            self._run_ready()
            asyncio._set_running_loop(None)  # noqa: SLF001

    def _run_ready(self) -> None:
        """Call what is ready, and what becomes so meanwhile, until nothing is."""
        ready = self._ready
        while ready:
            act, args, context = ready.popleft()
            if act is None:
                continue
            if context is None:
                act(*args)
            else:
                context.run(act, *args)

    def _advance(self) -> None:
        """Go on to the next timer."""
        if not self._timers:
            raise DeadlockError("nothing is ready and no timer is set")
        when, _, call = heapq.heappop(self._timers)
        if call[0] is not None:
            self._now = max(self._now, when)
            self._ready.append(call)


class _Call(list[Any]):
    """Callback, arguments, context: what of a handle there is any use for.

    A list, because half a million are made for a world, and lists are made without Python's help.
    """

    def cancel(self) -> None:
        """Do not call it."""
        self[0] = None


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Return what ``main`` returns on a fresh virtual loop."""
    return VirtualLoop().run(main)


async def wait_until(at_s: float) -> None:
    """Return at virtual time ``at_s``, or at once when it is over."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    loop.call_at(at_s, _reach, reached)
    await reached


def _reach(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def rng_of(*parts: object) -> random.Random:
    """Return the generator that ``parts`` name: the same on every machine and in every process."""
    return random.Random("/".join(map(str, parts)))  # noqa: S311
