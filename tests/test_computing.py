"""What is computed in the background takes one core, and training keeps its own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
import torch

from gradientmail.closer.aggregation import side_by_side
from gradientmail.codecs.layout import CHUNK
from gradientmail.computing import computing_threads


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def close_a_round() -> None:
    """Set and start threads as an aggregation does."""
    with side_by_side(2) as each:
        list(each(lambda bounds: bounds, [(0, CHUNK), (CHUNK, 2 * CHUNK)]))


@pytest.mark.usefixtures("three_threads")
def test_the_background_takes_one_thread_and_leaves_the_others_as_they_are() -> None:
    later: list[int] = []

    async def learn() -> int:
        with computing_threads(2) as offload:
            await offload(close_a_round)
            return await offload(torch.get_num_threads)

    assert asyncio.run(learn()) == 1
    assert torch.get_num_threads() == 3
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [3]


def test_results_and_errors_come_back() -> None:
    async def learn() -> None:
        with computing_threads(2) as offload:
            assert await offload(divmod, 7, 3) == (2, 1)
            with pytest.raises(ZeroDivisionError):
                await offload(divmod, 7, 0)

    asyncio.run(learn())


def test_a_system_that_gives_no_more_threads_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse_the_third(thread: threading.Thread) -> None:
        if thread.name.endswith("_2"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_third)
    with pytest.raises(RuntimeError, match="can't start"), computing_threads(4):
        pass
