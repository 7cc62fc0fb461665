"""Worlds side by side, in processes of their own."""

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
    """Use one thread, which is fastest for tiny tensors, and log nothing."""
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
