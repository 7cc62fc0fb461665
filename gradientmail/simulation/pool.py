"""Worlds side by side, in processes of their own."""

import gc
import logging
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def mapped(judge: Callable[[T], R], cases: Iterable[T], jobs: int) -> Iterator[R]:
    """Yield what ``judge`` says of each case, in their order; ``jobs`` processes work."""
    quiet()
    if jobs == 1:
        yield from map(judge, cases)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=quiet) as pool:
        yield from pool.imap(judge, cases, chunksize=4)


def quiet() -> None:
    """Use one thread, which is fastest for tiny tensors, log nothing, and look for garbage seldom.

    A world makes much and leaves little: looking a thirtieth as often saves a twentieth of it.
    """
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(20_000)
