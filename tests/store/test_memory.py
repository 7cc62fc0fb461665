"""The store in memory is shared by the threads of a process, as ``memory://name`` says."""

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gradientmail.store.base import Created
from gradientmail.store.memory import MemoryStore

THREADS = 4
KEYS = [f"race/{number:04d}" for number in range(300)]


@pytest.fixture(autouse=True)
def _eager_threads() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_race_to_create_have_one_winner_and_list_what_is_there() -> None:
    store = MemoryStore()

    async def race(body: bytes) -> list[Created]:
        outcomes = []
        for number, key in enumerate(KEYS):
            outcomes.append(await store.create(key, body))
            assert len(await store.list("race/")) > number
        return outcomes

    with ThreadPoolExecutor(THREADS) as pool:
        bodies = [bytes([number]) for number in range(THREADS)]
        by_thread = list(pool.map(lambda body: asyncio.run(race(body)), bodies))
    for outcomes in zip(*by_thread, strict=True):
        assert outcomes.count(Created.CREATED) == 1
