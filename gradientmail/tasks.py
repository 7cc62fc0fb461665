"""Tasks that live and die together: nothing keeps running behind an error or a cancellation."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from gradientmail.clock import Clock
from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.logs import FieldLogger

T = TypeVar("T")


async def race(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run all until the first one ends or fails; end the others."""
    await _run(coroutines, asyncio.FIRST_COMPLETED)


async def together(*coroutines: Coroutine[Any, Any, Any]) -> None:
    """Run all, if any, to their end; when one fails, end the others."""
    if coroutines:
        await _run(coroutines, asyncio.FIRST_EXCEPTION)


async def first_of(*waits: Awaitable[object]) -> None:
    """Return when the first of ``waits`` is over; the others are given up, unless they are tasks.

    Errors are left to whoever awaits the tasks.
    """
    tasks = [
        wait if isinstance(wait, asyncio.Task) else asyncio.ensure_future(wait) for wait in waits
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, wait in zip(tasks, waits, strict=True):
            if task is not wait:
                task.cancel()


class NewestFirst:
    """A bounded number of seats for tasks; a seat that becomes free goes to who came last.

    Example:
        >>> seats = NewestFirst(2)
        >>> async with seats:
        ...     await upload()
    """

    def __init__(self, seats: int) -> None:
        self._free = seats
        self._waiting: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> None:
        """Wait for a seat."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave()  # it was given a seat at the same moment
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        """Leave the seat to another."""
        self._leave()

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():  # else it was given up, and has not heard of it yet
                turn.set_result(None)
                return
        self._free += 1


async def _run(coroutines: tuple[Coroutine[Any, Any, Any], ...], return_when: str) -> None:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=return_when)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def persistently(
    act: Callable[[], Awaitable[T]],
    clock: Clock,
    log: FieldLogger,
    *,
    pause_s: float,
    fields: Mapping[str, int] | None = None,
) -> T:
    """Return what ``act`` does, tried again for as long as the store is out of reach or full.

    The act may be repeated: what counts is created once, or has a name that is ours alone.

    Args:
        act: Begun anew with each attempt.
        clock: Of the pauses.
        log: Told of the first attempt that failed, and of the 2nd, 4th, 8th and so on.
        pause_s: Between two of them.
        fields: Which fragment and version it is about.
    """
    failed = 0
    while True:
        try:
            return await act()
        except (StoreUnavailableError, StoreFullError) as exc:
            failed += 1
            if failed.bit_count() == 1:
                extra = dict(fields or {})
                log.warning("the store does not take it, trying again: %s", exc, extra=extra)
            await clock.sleep(pause_s)
