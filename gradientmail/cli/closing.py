"""``gradientmail closer``, in this process or beside a learner in one of its own."""

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

from msgspec.structs import replace

from gradientmail.cli.exits import report
from gradientmail.cli.logs import configure_logging
from gradientmail.cli.signals import ending_on_signals
from gradientmail.closer.daemon import Closer
from gradientmail.config import NodeSettings


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
    try:
        yield
    finally:
        sender.close()
        child.join()


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
