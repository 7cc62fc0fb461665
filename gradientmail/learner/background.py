"""The exchange in a thread of its own, and what the training thread sees of it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any

from gradientmail.errors import NotJoinedError
from gradientmail.learner.desk import Desk
from gradientmail.learner.exchange import Exchange
from gradientmail.learner.gossip import Gossip


class Background:
    """Runs ``main`` in an event loop of its own thread until told to leave.

    Args:
        main: Called in that loop with this object; calls ``ready``, then returns once ``leaving``.
            Before it is ready it is cancelled instead.
    """

    def __init__(self, main: Callable[["Background"], Coroutine[Any, Any, None]]) -> None:
        self.leaving = asyncio.Event()
        self._main = main
        self._ready: Future[tuple[Desk, Exchange | Gossip]] = Future()
        self._news = threading.Condition()
        self._count = 0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="gradientmail", daemon=True)
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None

    # -- in the background thread ------------------------------------------------------------

    def _work(self) -> None:
        try:
            asyncio.run(self._enter())
        except BaseException as exc:  # noqa: BLE001 - it is the training thread's to handle
            self._failure = exc
            with contextlib.suppress(InvalidStateError):  # it was ready, or is no longer awaited
                self._ready.set_exception(exc)
        self.notify()

    async def _enter(self) -> None:
        main = asyncio.create_task(self._main(self))
        with self._news:
            self._running = asyncio.get_running_loop(), main
            if self._ready.cancelled():
                main.cancel()
        try:
            await main
        finally:
            with self._news:
                self._running = None  # from here on nobody calls into a loop about to close

    def ready(self, desk: Desk, exchange: Exchange | Gossip) -> None:
        """The run is open and every fragment has arrived.

        Raises:
            InvalidStateError: it was given up.
        """
        self._ready.set_result((desk, exchange))

    def notify(self) -> None:
        """There is news for the training thread."""
        with self._news:
            self._count += 1
            self._news.notify_all()

    # -- in the training thread --------------------------------------------------------------

    def start(self) -> tuple[Desk, Exchange | Gossip]:
        """Start, and wait for ``ready``.

        Raises:
            NotJoinedError: ``give_up`` was called; what the background raised before it was ready.
        """
        self._thread.start()
        try:
            return self._ready.result()
        except CancelledError:
            raise NotJoinedError("asked to stop before it had joined the run") from None

    def require_ready(self) -> None:
        """Refuse what needs a run that was joined.

        Raises:
            NotJoinedError: it was not.
        """
        if not self._ready.done() or self._ready.cancelled() or self._ready.exception():
            raise NotJoinedError("not in the run: write `with learner:` around the training loop")

    def give_up(self) -> None:
        """Wait no longer to become ready; from any thread or a signal handler."""
        self._ready.cancel()

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

    def call(self, act: Callable[[], Coroutine[Any, Any, object]], timeout_s: float) -> None:
        """Run ``act`` in the background and wait for it.

        Raises:
            TimeoutError: it took longer; what ended the background meanwhile or before.
        """
        with self._news:
            running = self._running and asyncio.run_coroutine_threadsafe(act(), self._running[0])
        try:
            if running is not None:
                running.result(timeout_s)
                return
        except CancelledError:
            pass
        finally:
            if running is not None:
                running.cancel()
        self._thread.join()  # the background has ended: only then it is known why
        self.check()

    def stop(self, *, at_once: bool = False) -> None:
        """Let the background leave, or end it at once, and wait until it has."""
        was_ready = not self._ready.cancel() and self._ready.exception() is None
        leaves = was_ready and not at_once
        with self._news:
            if self._running is not None:
                loop, main = self._running
                loop.call_soon_threadsafe(self.leaving.set if leaves else main.cancel)
        if self._thread.ident is not None:
            self._thread.join()
