"""Coding on a GPU beside the training that goes on there: a side stream, and pinned memory.

A pseudo-gradient is quantized where it lies, and only its codes are copied out: a quarter of the
bytes or less. On the CPU all of this is nothing at all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor


@contextmanager
def beside(x: Tensor) -> Iterator[None]:
    """Run what follows on the side stream of the device of ``x``, after what made ``x``.

    What is made inside may be used afterwards: the stream that is current then waits for it.
    """
    if x.device.type != "cuda":
        yield
        return
    current, side = torch.cuda.current_stream(x.device), _side_stream(x.device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    x.record_stream(side)  # its memory is not given to others before this is done
    current.wait_stream(side)


def on_host(items: Tensor) -> Tensor:
    """Return ``items`` on the CPU: itself, or a copy in pinned memory, which is there."""
    if items.device.type == "cpu":
        return items
    host = torch.empty(items.shape, dtype=items.dtype, pin_memory=items.device.type == "cuda")
    host.copy_(items, non_blocking=True)
    if items.device.type == "cuda":
        torch.cuda.current_stream(items.device).synchronize()
    return host


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
