import asyncio

import pytest

from gradientmail.simulation.loop import rng_of, run_virtual, wait_until
from gradientmail.simulation.process import ClockError, Process


def test_each_process_has_clocks_of_its_own():
    async def main():
        error = ClockError(rate=4.0, origin_s=1000.0, wall_s=-1e6)
        clock = Process("fast", error, rng_of(1)).clock
        wall = clock.wall()
        await clock.sleep(40.0)
        true_s = asyncio.get_running_loop().time()
        return true_s, clock.now(), clock.wall() - wall

    true_s, now, wall_s = run_virtual(main())
    assert true_s == pytest.approx(10.0, abs=0.01)
    assert now == pytest.approx(1040.0, abs=0.01)
    assert wall_s == pytest.approx(10.0, abs=0.01)


def test_a_sleeper_never_wakes_before_its_time():
    async def main():
        clock = Process("slow", ClockError(rate=0.3, origin_s=987654.321), rng_of(2)).clock
        for _ in range(1000):
            until = clock.now() + 0.1
            await clock.sleep(until - clock.now())
            assert clock.now() >= until

    run_virtual(main())


def test_a_paused_process_does_nothing_until_it_is_over():
    async def main():
        process = Process("paused", ClockError(), rng_of(3))
        sleeping = asyncio.create_task(process.clock.sleep(1.0))
        await wait_until(0.5)
        process.pause(100.0)
        await sleeping
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(100.5)


def test_a_killed_process_runs_no_clean_up():
    async def main():
        process = Process("dead", ClockError(), rng_of(4))
        cleaned = []

        async def work():
            try:
                await process.clock.sleep(10.0)
            finally:
                await process.clock.sleep(1.0)
                cleaned.append(True)

        task = asyncio.create_task(work())
        process.on_death(task.cancel)
        await wait_until(5.0)
        process.kill()
        await asyncio.wait([task])
        return cleaned

    assert run_virtual(main()) == []
