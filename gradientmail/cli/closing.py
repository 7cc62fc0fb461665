"""``gradientmail closer``, in this process or beside a learner in one of its own."""

import contextlib
import logging
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from msgspec.structs import replace

from gradientmail.cli.exits import report
from gradientmail.cli.logs import CLI_LOGGER, configure_logging
from gradientmail.cli.signals import ending_on_signals
from gradientmail.closer.daemon import Closer
from gradientmail.config import NodeSettings

log = logging.getLogger(CLI_LOGGER)


def run_closer(url: str, node: NodeSettings, *, until_done: bool) -> None:
    """Close rounds until a signal comes; with ``until_done``, or the run has ended."""
    closer = Closer(url, node=node)
    with ending_on_signals(closer.request_stop):
        closer.run(until_done=until_done)


@contextlib.contextmanager
def closer_beside(url: str, node: NodeSettings) -> Iterator[None]:
    """Run a closer in a child process, which ends when this block or this process does."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (url, replace(node, name=None), receiver)
    child = context.Process(target=_close_beside, args=arguments)
    child.start()
    receiver.close()
    leaving = threading.Event()
    watching = threading.Thread(target=_warn_of_end, args=(child, leaving), daemon=True)
    watching.start()
    try:
        yield
    finally:
        leaving.set()
        sender.close()
        watching.join()


def _warn_of_end(child: SpawnProcess, leaving: threading.Event) -> None:
    """Say when the closer ends by itself: the learner may hold for a commit nobody makes."""
    child.join()
    if not leaving.is_set():
        log.warning(
            "the closer beside this learner has ended with exit code %s: unless another one runs, "
            "no round is closed any more; start `gradientmail closer`",
            child.exitcode,
        )


def _close_beside(url: str, node: NodeSettings, parent: Connection) -> None:
    """Close rounds until the parent hangs up, by intent or death; Ctrl-C is its to judge."""
    configure_logging(node)
    closer = Closer(url, node=node)

    def end_with_parent() -> None:
        with contextlib.suppress(EOFError):
            parent.recv_bytes()
        closer.request_stop()

    threading.Thread(target=end_with_parent, daemon=True).start()
    with ending_on_signals(closer.request_stop):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            closer.run()
        except Exception as error:
            raise SystemExit(report(error)) from error
