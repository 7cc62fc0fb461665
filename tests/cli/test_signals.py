"""The first signal asks, the second does not."""

import io
import logging
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from gradientmail.cli.signals import ending_on_signals, log
from tests.cli.processes import ROOT

STUBBORN = """
import os
import signal
from gradientmail.cli.signals import ending_on_signals
with ending_on_signals(lambda: os.write(1, b"asked\\n")):
    os.write(1, b"ready\\n")
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_asks(number: signal.Signals) -> None:
    asked: list[bool] = []

    with ending_on_signals(lambda: asked.append(True)):
        os.kill(os.getpid(), number)

    assert asked == [True]


class Interrupted(io.RawIOBase):
    """A stream in whose first write a signal comes."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        is_first = not self.written
        self.written += bytes(data)
        if is_first:
            os.kill(os.getpid(), signal.SIGTERM)
        return len(data)


def test_a_signal_amid_a_log_line_ends_cleanly_and_is_told_after_it() -> None:
    asked: list[bool] = []
    stream = Interrupted()
    handler = logging.StreamHandler(
        io.TextIOWrapper(io.BufferedWriter(stream), write_through=True)
    )
    log.addHandler(handler)
    try:
        with ending_on_signals(lambda: asked.append(True)):
            log.warning("holding the lease")
    finally:
        log.removeHandler(handler)
    first, second = stream.written.decode().splitlines()
    assert (asked, first) == ([True], "holding the lease")
    assert second.startswith("SIGTERM: ending cleanly")


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    with ending_on_signals(lambda: None):
        assert signal.getsignal(signal.SIGINT) is not before[0]

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_ends_at_once(number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STUBBORN], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in ("ready\n", "asked\n"):
            assert process.stdout.readline() == line
            process.send_signal(number)

        assert process.wait(timeout=60) == code
