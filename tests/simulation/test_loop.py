import asyncio

import pytest

from gradientmail.simulation.loop import DeadlockError, rng_of, run_virtual, wait_until


def test_waiting_costs_no_time_and_keeps_its_order():
    async def main():
        seen = []

        async def actor(number):
            for turn in range(3):
                await asyncio.sleep(3600 * (number + 1))
                seen.append((asyncio.get_running_loop().time(), number, turn))

        await asyncio.gather(*(actor(number) for number in range(3)))
        return seen

    first = run_virtual(main())
    assert first == run_virtual(main())
    assert [at for at, _, _ in first] == sorted(at for at, _, _ in first)
    assert first[-1] == (3 * 3 * 3600.0, 2, 2)


def test_time_stands_still_while_something_is_ready():
    async def main():
        await wait_until(7.0)
        for _ in range(100):
            await asyncio.sleep(0)
        await wait_until(5.0)  # over already
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 7.0


def test_a_loop_in_which_nothing_will_ever_happen_says_so():
    async def main():
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_virtual(main())


def test_chance_is_the_same_everywhere():
    assert rng_of("line", 7, "closer-0").getrandbits(32) == 1526628378
