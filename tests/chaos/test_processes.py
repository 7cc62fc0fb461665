"""Processes are real: they crash, stop, go on and end; one that fails is not overlooked."""

import signal
import time
from pathlib import Path

import pytest

from gradientmail.chaos.processes import ChaosError, Processes
from tests.cli.conftest import make_run


def until(condition) -> None:
    while not condition():
        time.sleep(0.02)


def test_a_process_dies_where_it_was_told_to(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    with Processes(tmp_path / "logs", {"OMP_NUM_THREADS": "1"}) as processes:
        at = {"GRADIENTMAIL_CRASH_AT": "2:after"}
        processes.start("one", ["closer", str(tmp_path / "run"), "--name", "one"], at)
        until(lambda: processes.died() == ["one"])
        assert not [*processes.running()]


def test_one_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    with Processes(tmp_path / "logs", {}) as processes:
        processes.start("one", ["closer", str(tmp_path / "nothing")], {})
        until(lambda: not [*processes.running()])
        with pytest.raises(ChaosError, match=r"one ended with exit code 3: [^$]*no run here"):
            processes.died()


def test_a_stopped_process_goes_on_and_is_gone_at_the_end(tmp_path: Path) -> None:
    make_run(tmp_path / "run", lease_s=1.0, poll_s=0.1)
    processes = Processes(tmp_path / "logs", {"OMP_NUM_THREADS": "1"})
    with processes:
        processes.start("one", ["closer", str(tmp_path / "run"), "--name", "one"], {})
        beat = tmp_path / "run" / "terms" / "0000000001.beat"
        until(beat.exists)
        go_on = processes.stop("one")
        stopped_at = beat.read_bytes()
        go_on()
        until(lambda: beat.read_bytes() != stopped_at)
        processes.stop("one")
        process = processes._children["one"].process
    assert process.exitcode == -signal.SIGKILL
