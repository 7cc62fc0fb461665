"""A process dies at exactly the store operation it was told to die at."""

import asyncio
import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from gradientmail.config import NodeSettings, from_environment
from gradientmail.errors import SettingsError, StoreUnavailableError
from gradientmail.store.base import Store
from gradientmail.store.crashing import CrashingStore, CrashPoint
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.faulty import Fault, FaultyStore
from gradientmail.testing.stores import StoreConformance


class TestCounting(StoreConformance):
    """A store that never reaches its point is as good as the one inside."""

    def make_store(self) -> Store:
        return CrashingStore(MemoryStore(), CrashPoint(10**9), numbers=count(1))


class CrashedError(Exception):
    """Stands for the end of the process."""


def crash() -> None:
    raise CrashedError


@pytest.mark.parametrize(("after", "applied"), [(False, False), (True, True)])
def test_before_is_not_applied_and_after_is(*, after: bool, applied: bool) -> None:
    async def scenario() -> None:
        inner = MemoryStore()
        store = CrashingStore(inner, CrashPoint(2, after=after), crash=crash, numbers=count(1))
        await store.create("a", b"x")
        with pytest.raises(CrashedError):
            await store.create("b", b"x")
        assert (await inner.read("b") is not None) == applied
        await store.create("c", b"x")

    asyncio.run(scenario())


def test_an_operation_that_failed_is_one() -> None:
    async def scenario() -> None:
        inner = FaultyStore(MemoryStore(), lambda *_: Fault.LOSE_ANSWER)
        store = CrashingStore(inner, CrashPoint(2, after=True), crash=crash, numbers=count(1))
        with pytest.raises(StoreUnavailableError):
            await store.put("a", [b"x"])
        with pytest.raises(CrashedError):
            await store.put("b", [b"x"])

    asyncio.run(scenario())


def test_all_stores_of_a_process_count_together() -> None:
    async def scenario() -> None:
        numbers = count(1)
        one, other = (
            CrashingStore(MemoryStore(), CrashPoint(3), crash=crash, numbers=numbers)
            for _ in range(2)
        )
        await one.list("")
        await other.delete(["a", "b"])
        with pytest.raises(CrashedError):
            await one.read("a")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "point"),
    [("3", "3:before"), ("3:before", "3:before"), ("17:after", "17:after")],
)
def test_where_to_crash_is_read_from_the_environment(text: str, point: str) -> None:
    assert str(CrashPoint.from_environment({"GRADIENTMAIL_CRASH_AT": text})) == point
    assert CrashPoint.from_environment({}) is None


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "x", "3:", "3:soon", ":after", "1.5", " 3", "\xb2"]
)
def test_what_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="as in 17, 17:before or 17:after"):
        CrashPoint.from_environment({"GRADIENTMAIL_CRASH_AT": text})


def test_it_is_not_taken_for_a_setting() -> None:
    environ = {"GRADIENTMAIL_CRASH_AT": "3", "GRADIENTMAIL_CLOCK": "3600"}
    assert from_environment(NodeSettings, environ) == {}


PROGRAM = """
import asyncio, sys
from gradientmail.clock import SystemClock, system_random
from gradientmail.store.url import open_store

async def main():
    store = open_store(sys.argv[1], clock=SystemClock(), rng=system_random())
    for number in range(5):
        await store.create(f"key-{number}", b"x")

asyncio.run(main())
"""


def test_a_process_kills_itself(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "GRADIENTMAIL_CRASH_AT": "3:after"},
        check=False,
    )
    assert process.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.glob("key-*")) == ["key-0", "key-1", "key-2"]
