"""Threads that compute beside training or beside an event loop: encoding, decoding, closing."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import torch

from gradientmail.store.local import Offload

P = ParamSpec("P")
T = TypeVar("T")


@contextlib.contextmanager
def computing_threads(count: int) -> Iterator[Offload]:
    """Give an offload to ``count`` threads that compute on one core each, whatever training uses.

    They are none of those that a store on disk works with: else a lease might end because its beat
    waited for a sum.

    Torch deals a tensor's elements to as many threads as it is set to, for each thread that asks:
    left at that, an encoding would take every core from the training step beside it.
    """
    before = torch.get_num_threads()
    with ThreadPoolExecutor(count, "gradientmail-compute", _take_one_core) as pool:
        _start_all(pool, count)
        torch.set_num_threads(before)  # threads that start later inherit what was set last

        async def offload(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
            loop = asyncio.get_running_loop()
            try:
                return await loop.run_in_executor(pool, partial(function, *args, **kwargs))
            finally:
                torch.set_num_threads(before)  # closing starts threads of its own, and sets it

        yield offload


def _start_all(pool: ThreadPoolExecutor, count: int) -> None:
    started = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            pool.submit(started.wait)
        started.wait()
    except BaseException:  # the system gives no more threads: let those that wait go
        started.abort()
        raise


def _take_one_core() -> None:
    torch.get_num_threads()  # a thread's first question takes over what was set last, anywhere
    torch.set_num_threads(1)
