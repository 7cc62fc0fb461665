"""The background thread: it starts, it fails, it leaves, and the training thread learns of it."""

import asyncio
import threading
import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest

from gradientmail.errors import NotJoinedError
from gradientmail.learner.background import Background
from gradientmail.learner.desk import Desk
from gradientmail.learner.exchange import Exchange

DESK, EXCHANGE = cast("Desk", object()), cast("Exchange", object())


class BrokenError(Exception):
    """What ends a background here."""


async def obedient(background: Background) -> None:
    background.ready(DESK, EXCHANGE)
    await background.leaving.wait()


async def broken_at_the_start(background: Background) -> None:
    raise BrokenError("no run")


def broken_by(event: threading.Event) -> Any:
    async def main(background: Background) -> None:
        background.ready(DESK, EXCHANGE)
        await asyncio.to_thread(event.wait)
        raise BrokenError("the store refuses us")

    return main


def test_starting_waits_until_it_is_ready() -> None:
    background = Background(obedient)
    assert background.start() == (DESK, EXCHANGE)
    assert not background.failed
    background.check()
    background.stop()


def test_what_goes_wrong_at_the_start_is_raised_by_the_start() -> None:
    background = Background(broken_at_the_start)
    with pytest.raises(BrokenError, match="no run"):
        background.start()
    background.stop()


def test_what_goes_wrong_later_is_news_and_raised_by_the_next_check() -> None:
    event = threading.Event()
    background = Background(broken_by(event))
    background.start()
    news = background.news
    event.set()
    assert background.wait_beyond(news, 60.0)
    with pytest.raises(BrokenError, match="refuses us"):
        background.check()
    assert background.failed
    background.stop()


def test_news_from_another_thread_ends_a_wait() -> None:
    background = Background(obedient)
    background.start()
    news = background.news
    assert not background.wait_beyond(news, 0.0)
    threading.Thread(target=background.notify).start()
    assert background.wait_beyond(news, 60.0)
    assert background.wait_beyond(news, 60.0), "news that came before the wait counts"
    background.stop()


def test_a_call_runs_in_the_background_and_is_waited_for() -> None:
    background = Background(obedient)
    background.start()
    ran_in: list[str] = []

    async def call() -> None:
        ran_in.append(threading.current_thread().name)

    background.call(call, 60.0)
    assert ran_in == ["gradientmail"]
    with pytest.raises(TimeoutError):
        background.call(asyncio.Event().wait, 0.0)
    background.stop()


def test_a_call_to_a_background_that_has_failed_raises_why_and_leaves_nothing_unawaited() -> None:
    event = threading.Event()
    background = Background(broken_by(event))
    background.start()
    news = background.news
    event.set()
    background.wait_beyond(news, 60.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BrokenError):
            background.call(asyncio.Event().wait, 1.0)
    background.stop()


def without_end(entered: threading.Event) -> Callable[[Background], Any]:
    async def main(background: Background) -> None:
        entered.set()
        await asyncio.Event().wait()

    return main


def test_giving_up_ends_the_wait_to_be_ready_and_what_is_under_way() -> None:
    entered = threading.Event()
    background = Background(without_end(entered))

    def stop_it() -> None:
        entered.wait()
        background.give_up()

    threading.Thread(target=stop_it).start()
    with pytest.raises(NotJoinedError, match="before it had joined"):
        background.start()
    background.stop()
    assert not background._thread.is_alive()


def test_a_background_that_was_never_started_can_be_stopped() -> None:
    Background(without_end(threading.Event())).stop()


def test_a_pending_call_raises_what_ended_the_background() -> None:
    async def main(background: Background) -> None:
        background.ready(DESK, EXCHANGE)
        await called.wait()
        raise ZeroDivisionError

    called = asyncio.Event()

    async def call() -> None:
        called.set()
        await asyncio.Event().wait()

    background = Background(main)
    background.start()
    with pytest.raises(ZeroDivisionError):
        background.call(call, 60.0)
    background.stop()
