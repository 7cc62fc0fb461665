"""The first signal asks, the second does not."""

import os
import signal
import subprocess
import sys

import pytest

from gradientmail.cli.signals import ending_on_signals
from tests.cli.processes import ROOT

STUBBORN = """
import signal
from gradientmail.cli.signals import ending_on_signals
with ending_on_signals(lambda: print("asked", flush=True)):
    print("ready", flush=True)
    while True:
        signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_only_asks(number: signal.Signals) -> None:
    asked: list[bool] = []

    with ending_on_signals(lambda: asked.append(True)):
        os.kill(os.getpid(), number)

    assert asked == [True]


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
