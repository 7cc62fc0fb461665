"""The demo's processes: each leads a group of its own, is watched, and is ended by its id."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from gradientmail.errors import GradientMailError

TAIL_LINES = 10
END_S = 10.0
"""How long a child may take to end cleanly."""


class DemoError(GradientMailError):
    """The demo cannot go on; the message says what happened, and where to read more."""


def gradientmail(*words: str) -> tuple[str, ...]:
    """Return the command that a person types as ``gradientmail WORDS``."""
    return sys.executable, "-m", "gradientmail.cli.main", *words


class Children:
    """Processes by name; leaving the block ends those that still run.

    Args:
        logs: A directory: what the process NAME logs goes to ``NAME.jsonl`` there.
        environment: Variables they get on top of ours.

    Example:
        >>> async with Children(Path("logs"), {}) as children:
        ...     await children.start("closer", *gradientmail("closer", "runs/one"))
        ...     await children.kill("closer")
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs, self._environment = logs, environment
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._ending: set[str] = set()
        self._killed: set[str] = set()

    async def __aenter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End what still runs: by SIGTERM, and after a while by SIGKILL."""
        await asyncio.gather(*(self._end(child) for child in self._running.values()))

    async def start(self, name: str, *command: str) -> asyncio.StreamReader:
        """Start ``command``; return its stdout, which must be read if it is long."""
        with self.log(name).open("ab") as log:
            child = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **self._environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._running[name] = child
        self._killed.discard(name)
        return cast("asyncio.StreamReader", child.stdout)

    async def output(self, name: str, *command: str) -> str:
        """Run ``command`` to its end and return what it printed.

        Raises:
            DemoError: it failed.
        """
        self._ending.add(name)
        printed = await (await self.start(name, *command)).read()
        await self.finish(name, limit_s=END_S)
        return printed.decode()

    async def kill(self, name: str) -> None:
        """End a process as a power cut would."""
        child = self._running.pop(name)
        self._killed.add(name)
        _signal(child, signal.SIGKILL)
        await child.wait()

    async def finish(self, name: str, *, limit_s: float) -> None:
        """Wait for a process that is about to end by itself.

        Raises:
            DemoError: it failed, or did not end.
        """
        self._ending.add(name)
        try:
            async with asyncio.timeout(limit_s):
                code = await self._running[name].wait()
        except TimeoutError as error:
            raise self._error(name, f"did not end within {limit_s:.0f} s") from error
        del self._running[name]
        self._ending.remove(name)
        if code != 0:
            raise self._error(name, f"failed with exit code {code}")

    def check(self) -> None:
        """Find every process running.

        Raises:
            DemoError: one has ended, and nobody told it to.
        """
        for name in self._running.keys() - self._ending:
            child = self._running[name]
            if child.returncode is not None:
                raise self._error(name, f"ended with exit code {child.returncode}")

    def pid(self, name: str) -> int | None:
        """Return the id of a running process; None when there is none of that name."""
        child = self._running.get(name)
        return child.pid if child else None

    def state(self, name: str) -> str:
        """Return a word or two for people: the id of a running process, or how it ended."""
        pid = self.pid(name)
        return f"pid {pid}" if pid else "killed" if name in self._killed else "ended"

    def log(self, name: str) -> Path:
        """Return the file with what ``name`` logged."""
        return self._logs / f"{name}.jsonl"

    def _error(self, name: str, what: str) -> DemoError:
        log = self.log(name)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        last_words = "\n".join(lines) or "(it logged nothing)"
        return DemoError(f"{name} {what}; the end of {log}:\n{last_words}")

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        _signal(child, signal.SIGTERM)
        try:
            async with asyncio.timeout(END_S):
                await child.communicate()
        except TimeoutError:
            _signal(child, signal.SIGKILL)
            await child.wait()


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to the whole group, unless its leader has ended."""
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
