"""The exchange in a thread of its own, and what the training thread sees of it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from gradientmail.learner.desk import Desk
from gradientmail.learner.exchange import Exchange


class Background:
    """Runs ``main`` in an event loop of its own thread until told to leave.

    Args:
        main: Called in that loop with this object; calls ``ready``, then returns once ``leaving``.
    """

    def __init__(self, main: Callable[["Background"], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._ready: Future[tuple[Desk, Exchange]] = Future()
        self._news = threading.Condition()
        self._count = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="gradientmail", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self.leaving: asyncio.Event

    # -- in the background thread ------------------------------------------------------------

    def _work(self) -> None:
        try:
            asyncio.run(self._enter())
        except BaseException as exc:  # noqa: BLE001 - it is the training thread's to handle
            self._failure = exc
            if not self._ready.done():
                self._ready.set_exception(exc)
        self.notify()

    async def _enter(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.leaving = asyncio.Event()
        await self._main(self)

    def ready(self, desk: Desk, exchange: Exchange) -> None:
        """The run is open and every fragment has arrived."""
        self._ready.set_result((desk, exchange))

    def notify(self) -> None:
        """There is news for the training thread."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    # -- in the training thread --------------------------------------------------------------

    def start(self) -> tuple[Desk, Exchange]:
        """Start, and wait for ``ready``. Raises what the background raised instead."""
        self._thread.start()
        return self._ready.result()

    @property
    def failed(self) -> bool:
        """Whether the background has ended by an error, which ``check`` raises."""
        return self._failure is not None

    def check(self) -> None:
        """Raise what ended the background, if anything did."""
        if self._failure is not None:
            raise self._failure

    @property
    def news(self) -> int:
        """How much news there has been."""
        return self._count

    def wait_beyond(self, news: int, timeout_s: float | None = None) -> bool:
        """Wait until there is more news than ``news``; False when the time is up."""
        with self._news:
            return self._news.wait_for(lambda: self._count > news, timeout_s)

    def call(self, coroutine: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """Run ``coroutine`` in the background and wait for it.

        Raises:
            TimeoutError: it took longer.
        """
        self.check()
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            running.result(timeout_s)
        finally:
            running.cancel()

    def stop(self) -> None:
        """Let the background leave, and wait until it has."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.leaving.set)
        self._thread.join()
