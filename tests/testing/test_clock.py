import asyncio

from gradientmail.testing.clock import ManualClock, SkippingClock


def test_a_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    async def scenario() -> None:
        clock, log = ManualClock(), []

        async def sleeper(seconds: float) -> None:
            await clock.sleep(seconds)
            log.append((seconds, clock.now()))

        tasks = [asyncio.create_task(sleeper(seconds)) for seconds in (3.0, 1.0, 2.0)]
        await clock.advance(0.5)
        assert log == []
        await clock.advance(2.0)
        assert log == [(1.0, 1.0), (2.0, 2.0)]
        assert clock.now() == 2.5
        await clock.advance(0.5)
        await asyncio.gather(*tasks)
        assert log[-1] == (3.0, 3.0)

    asyncio.run(scenario())


def test_one_advance_wakes_a_loop_of_sleeps_as_often_as_it_fits() -> None:
    async def scenario() -> None:
        clock, beats = ManualClock(), []

        async def beat() -> None:
            while True:
                await clock.sleep(1.0)
                beats.append(clock.now())

        task = asyncio.create_task(beat())
        await clock.advance(3.5)
        assert beats == [1.0, 2.0, 3.0]
        task.cancel()

    asyncio.run(scenario())


def test_a_cancelled_sleeper_does_not_hold_the_others_up() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        gone, stays = (asyncio.create_task(clock.sleep(seconds)) for seconds in (1.0, 2.0))
        await clock.advance(0.0)
        gone.cancel()
        await clock.advance(2.0)
        assert stays.done()

    asyncio.run(scenario())


def test_on_a_skipping_clock_sleep_costs_only_its_own_time() -> None:
    async def scenario() -> None:
        clock = SkippingClock()
        await clock.sleep(60.0)
        assert clock.now() == 60.0
        assert clock.wall() - clock.now() == SkippingClock().wall()

    asyncio.run(scenario())
