"""Learners and closers as processes: forked from a server that has imported torch already."""

import contextlib
import multiprocessing
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Self

from gradientmail.errors import GradientMailError

TAIL_BYTES = 2000
END_S = 10.0

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "torch._dynamo",  # each optimizer imports it
        "gradientmail.cli.closing",
        "gradientmail.cli.settings",
        "gradientmail.cli.training",
        "gradientmail.programs.digits",
        "gradientmail.store.s3",
        "gradientmail.store.s3fs",
        "sklearn.datasets",
    ]
)


class ChaosError(GradientMailError):
    """A run went wrong; the message says how, and ends with a process's last words."""


@dataclass(slots=True)
class _Child:
    process: ForkServerProcess
    may_die: bool
    """It was told to crash, or we killed it."""


@dataclass(slots=True)
class Processes:
    """A context manager of processes by name; leaving it kills those that still run.

    Attributes:
        logs: A directory: what the process NAME prints goes to ``NAME.log`` there.
        environment: Variables they get on top of ours.
    """

    logs: Path
    environment: Mapping[str, str]
    _children: dict[str, _Child] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for name in [*self.running()]:
            self.kill(name)

    def start(self, name: str, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start ``gradientmail WORDS``, as a person would type it."""
        environment = {**self.environment, **variables}
        process = _PROCESSES.Process(
            target=_be, args=(words, environment, self.logs / f"{name}.log"), daemon=True
        )
        process.start()
        self._children[name] = _Child(process, may_die="GRADIENTMAIL_CRASH_AT" in variables)

    def running(self) -> Iterator[str]:
        """Yield the names of those that run."""
        yield from (name for name, child in self._children.items() if child.process.is_alive())

    def died(self) -> list[str]:
        """Return those that died of a crash they were told, and forget them.

        Raises:
            ChaosError: one failed, or was killed by somebody else.
        """
        ended = [name for name, child in self._children.items() if not child.process.is_alive()]
        died = []
        for name in ended:
            child = self._children[name]
            code = child.process.exitcode
            if code == 0:
                continue
            if code != -signal.SIGKILL or not child.may_die:
                raise ChaosError(f"{name} ended with exit code {code}: {self.last_words(name)}")
            died.append(name)
            del self._children[name]
        return died

    def kill(self, name: str) -> None:
        """End a process as a power cut would, also one that is stopped."""
        child = self._children.pop(name)
        self._signal(child, signal.SIGKILL)
        child.process.join(END_S)

    def stop(self, name: str) -> Callable[[], None]:
        """Stop a process where it stands; return what lets it go on."""
        child = self._children[name]
        self._signal(child, signal.SIGSTOP)
        return lambda: self._signal(child, signal.SIGCONT)

    def last_words(self, name: str) -> str:
        """Return the end of what a process printed."""
        log = self.logs / f"{name}.log"
        text = log.read_text(errors="replace")[-TAIL_BYTES:] if log.exists() else ""
        return f"the end of {log}:\n{text or '(it said nothing)'}"

    @staticmethod
    def _signal(child: _Child, number: signal.Signals) -> None:
        if child.process.pid is not None and child.process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.process.pid, number)


def _be(words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    """Become the command, for as long as the driver lives."""
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with log.open("ab") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    os.environ.update(environment)
    sys.argv = ["gradientmail", *words]
    runpy.run_module("gradientmail.cli.main", run_name="__main__")


def _end_with_driver() -> None:
    driver = multiprocessing.parent_process()
    if driver is not None:
        driver.join()
        os.kill(os.getpid(), signal.SIGKILL)
