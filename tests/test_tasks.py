"""Tasks that live and die together."""

import asyncio

import pytest

from gradientmail.errors import StoreAccessError, StoreFullError, StoreUnavailableError
from gradientmail.logs import get_logger
from gradientmail.tasks import NewestFirst, first_of, persistently, race, together
from gradientmail.testing.clock import ManualClock, turn

LOG = get_logger("gradientmail.test")


class Sleeper:
    """Sleeps until it is cancelled, and tells."""

    def __init__(self) -> None:
        self.cancelled = False

    async def sleep(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def end() -> None:
    """Do nothing."""


async def fail() -> None:
    raise ZeroDivisionError


async def test_a_race_ends_with_the_first_and_ends_the_others() -> None:
    sleeper = Sleeper()
    await race(sleeper.sleep(), end())
    assert sleeper.cancelled


@pytest.mark.parametrize("start", [race, together])
async def test_an_error_ends_the_others_and_is_raised(start: object) -> None:
    sleeper = Sleeper()
    with pytest.raises(ZeroDivisionError):
        await start(sleeper.sleep(), fail())  # type: ignore[operator]
    assert sleeper.cancelled


async def test_together_waits_for_all() -> None:
    last = asyncio.Event()

    async def second() -> None:
        await end()
        last.set()

    await together(end(), second(), last.wait())


@pytest.mark.parametrize("start", [race, together])
async def test_a_cancellation_reaches_all(start: object) -> None:
    sleepers = [Sleeper(), Sleeper()]
    task = asyncio.create_task(start(*(sleeper.sleep() for sleeper in sleepers)))  # type: ignore[operator]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(sleeper.cancelled for sleeper in sleepers)


async def test_an_act_is_repeated_while_the_store_is_out_of_reach_or_full() -> None:
    clock = ManualClock()
    failures = [StoreUnavailableError("no answer"), StoreFullError("no room")]

    async def act() -> str:
        if failures:
            raise failures.pop(0)
        return f"done at {clock.now():g}"

    task = asyncio.create_task(persistently(act, clock, LOG, pause_s=5.0))
    await clock.advance(9.0)
    assert not task.done()
    await clock.advance(1.0)
    assert task.result() == "done at 10"


async def test_an_error_that_retrying_cannot_help_passes() -> None:
    async def act() -> None:
        raise StoreAccessError("403")

    with pytest.raises(StoreAccessError):
        await persistently(act, ManualClock(), LOG, pause_s=5.0)


async def test_a_warning_says_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = [StoreFullError("full"), None]

    async def act() -> None:
        if error := outcomes.pop(0):
            raise error

    clock = ManualClock()
    acting = asyncio.create_task(
        persistently(act, clock, LOG, pause_s=1.0, fields={"fragment": 3, "version": 7})
    )
    await clock.advance(1.0)
    await acting
    (record,) = caplog.records
    assert (record.fragment, record.version) == (3, 7)  # type: ignore[attr-defined]


async def test_a_store_that_stays_full_is_told_of_ever_more_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act() -> None:
        raise StoreFullError("full")

    clock = ManualClock()
    acting = asyncio.create_task(persistently(act, clock, LOG, pause_s=1.0))
    for _ in range(99):
        await clock.advance(1.0)
    acting.cancel()
    assert len(caplog.records) == len([1, 2, 4, 8, 16, 32, 64])


async def test_the_first_wait_that_is_over_ends_coroutines_and_leaves_tasks_alone() -> None:
    sleeper, other = Sleeper(), Sleeper()
    task = asyncio.create_task(other.sleep())
    await first_of(sleeper.sleep(), end(), task)
    await turn()
    assert sleeper.cancelled
    assert not other.cancelled
    task.cancel()


async def test_a_free_seat_goes_to_who_came_last() -> None:
    seats, order, leave = NewestFirst(1), [], asyncio.Event()

    async def sit(name: str) -> None:
        async with seats:
            order.append(name)
            await leave.wait()

    sitting = [asyncio.create_task(sit(name)) for name in "abc"]
    await turn()
    assert order == ["a"]
    leave.set()
    await asyncio.gather(*sitting)
    assert order == ["a", "c", "b"]


async def test_who_gives_up_waiting_takes_no_seat() -> None:
    seats, order = NewestFirst(1), []
    leave = asyncio.Event()

    async def sit(name: str) -> None:
        async with seats:
            order.append(name)
            await leave.wait()

    first, second, third = (asyncio.create_task(sit(name)) for name in "abc")
    await turn()
    third.cancel()
    await turn()
    leave.set()
    await asyncio.gather(first, second)
    assert order == ["a", "b"]
    fourth = asyncio.create_task(sit("d"))
    await fourth
    assert order == ["a", "b", "d"]


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_who_gives_up_as_a_seat_becomes_free_passes_it_on(*, cancelled_first: bool) -> None:
    """In one turn of the loop the seat is left and a waiting one is cancelled."""
    seats, order, leave = NewestFirst(1), [], asyncio.Event()

    async def sit(name: str) -> None:
        async with seats:
            order.append(name)
            await leave.wait()

    first, second, third = (asyncio.create_task(sit(name)) for name in "abc")
    await turn()
    for act in (third.cancel, leave.set) if cancelled_first else (leave.set, third.cancel):
        act()
    async with asyncio.timeout(10.0):
        ends = await asyncio.gather(first, second, third, return_exceptions=True)
    assert ends[:2] == [None, None]
    assert isinstance(ends[2], asyncio.CancelledError)
    await sit("d")
    assert order == ["a", "b", "d"]
