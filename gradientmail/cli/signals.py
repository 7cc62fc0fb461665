"""Ctrl-C and SIGTERM: the first ends cleanly, the second at once."""

import contextlib
import logging
import os
import signal
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread
from types import FrameType

from gradientmail.cli.exits import SIGNALLED
from gradientmail.cli.logs import CLI_LOGGER

log = logging.getLogger(CLI_LOGGER)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def ending_on_signals(end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` at the first signal; at the second exit at once with 128 plus its number."""
    received: list[int] = []
    names: SimpleQueue[str | None] = SimpleQueue()
    telling = Thread(target=_tell, args=(names,), name="gradientmail-signals", daemon=True)

    def handle(number: int, _frame: FrameType | None) -> None:
        if received:
            os._exit(SIGNALLED + number)
        received.append(number)
        names.put(signal.Signals(number).name)
        end()

    telling.start()
    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        names.put(None)
        telling.join()


def _tell(names: SimpleQueue[str | None]) -> None:
    """Log each signal, in a thread: it may have come amid a log line, and a stream takes one."""
    while name := names.get():
        log.warning("%s: ending cleanly; once more to end at once", name)
