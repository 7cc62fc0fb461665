"""The watch finds a callback that computes for long, and none that only waits."""

import asyncio
import time

from gradientmail.testing.watch import watched_loops


def burn(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


async def compute(seconds: float) -> None:
    await asyncio.sleep(0)
    burn(seconds)


def test_a_task_that_computes_in_the_loop_is_found_and_named() -> None:
    with watched_loops(limit_s=0.05) as watch:
        asyncio.run(compute(0.1))
    ((took_s, name),) = watch.blocked
    assert took_s >= 0.1
    assert "compute" in name


def test_waiting_and_computing_elsewhere_block_nothing() -> None:
    async def elsewhere() -> None:
        await asyncio.sleep(0.1)
        await asyncio.to_thread(burn, 0.1)

    with watched_loops(limit_s=0.05) as watch:
        asyncio.run(elsewhere())
    assert watch.blocked == []


def test_after_the_watch_loops_are_as_before() -> None:
    before = asyncio.Handle._run
    with watched_loops():
        assert asyncio.Handle._run is not before
    assert asyncio.Handle._run is before
