"""Learners and closers as processes of the operating system, killed and started again by tests."""

import json
import multiprocessing
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.e2e import process
from tests.e2e.team import PATIENCE_S

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.e2e.process"])  # or each would import torch anew


class Fleet:
    """A context manager: at its end every process it started is gone.

    Args:
        run: Directory of the run.
        home: Where learners keep their state and their last words, and processes their output.
        save_every_s: How old a learner's state may be when it is killed.
    """

    def __init__(self, run: Path, home: Path, *, save_every_s: float = 0.0) -> None:
        self.run, self.home, self._save_every_s = run, home, save_every_s
        self._processes: dict[str, ForkServerProcess] = {}
        home.mkdir(exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill(*self._processes)

    def start(self, role: str, name: str, *points: str) -> None:
        """Start a process, which dies at the first of ``points`` that it passes."""
        place = process.Place(str(self.run), name, self.home, self._save_every_s)
        self._processes[name] = PROCESSES.Process(target=process.main, args=(role, place, points))
        self._processes[name].start()

    def kill(self, *names: str) -> None:
        """SIGKILL processes, now."""
        for name in names:
            self._processes[name].kill()
        for name in names:
            self._processes[name].join()

    def dies(self, name: str) -> None:
        """Wait until a process has died at one of its points."""
        assert self._exit_code(name) == -signal.SIGKILL, self.output(name)

    def ends(self, *names: str) -> None:
        """Wait until processes have ended by themselves, and well."""
        for name in names:
            assert self._exit_code(name) == 0, self.output(name)

    def _exit_code(self, name: str) -> int | None:
        self._processes[name].join(PATIENCE_S)
        return self._processes[name].exitcode

    def output(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")[-4000:]

    def last_words(self, *learners: str) -> dict[str, Any]:
        """Return what learners had become when they ended."""
        return {name: json.loads((self.home / f"{name}.json").read_text()) for name in learners}
