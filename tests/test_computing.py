"""What is computed in the background takes one core, and training keeps its own."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
import torch

from gradientmail.computing import computing_threads


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_the_background_takes_one_thread_and_leaves_the_others_as_they_are() -> None:
    later: list[int] = []

    async def learn() -> int:
        with computing_threads(2) as offload:
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
