"""Commands as real processes, and what they leave in the store."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from gradientmail.mailbox import Mailbox
from gradientmail.store.local import LocalStore

ROOT = Path(__file__).parents[2]
LIMIT_S = 90.0

T = TypeVar("T")


class Command:
    """``gradientmail WORDS`` running; killed at the end of the block if it still is."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gradientmail.cli.main", *map(str, words)],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GRADIENTMAIL_LOG_FORMAT": "json"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def read_until(self, words: str) -> None:
        """Read the log until a line has ``words``."""
        assert self.process.stderr is not None
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if words in line:
                return
        raise AssertionError(f"ended without {words!r}: {''.join(seen)}")

    def log(self) -> list[dict[str, object]]:
        """Wait for the end and return the log from here on."""
        _, err = self.process.communicate(timeout=LIMIT_S)
        return [msgspec.json.decode(line) for line in err.splitlines()]

    def ended(self) -> int:
        """Wait for the end and return the exit code."""
        self.log()
        return self.process.returncode


def mailbox(url: Path) -> Mailbox:
    return Mailbox(LocalStore(url))


def until(look: Callable[[], T]) -> T:
    """Return the first true thing that ``look`` sees."""
    deadline = time.monotonic() + LIMIT_S
    while not (seen := look()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
    return seen


def lease_is_released(url: Path) -> bool:
    async def look() -> bool:
        term = await mailbox(url).newest_term()
        beat = await mailbox(url).beat(term) if term else None
        return beat is not None and beat.released

    return asyncio.run(look())
