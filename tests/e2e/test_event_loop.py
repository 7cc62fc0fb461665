"""At the size of real fragments nothing computes in an event loop: beats and leases go on."""

import gc
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradientmail as gm
from gradientmail.testing.watch import watched_loops

SIDE = 4096
"""Of the one square matrix that is exchanged: 16.8 million parameters, 64 MiB."""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A run's place in memory, where there is one: disks are slow to fill."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.mark.parametrize(
    "settings",
    [{"uplink": "F32"}, {"uplink": "I8", "downlink": "I8"}],
    ids=["F32", "I8 both ways"],
)
def test_no_loop_is_blocked_by_fragments_of_64_mib(
    settings: dict[str, Any], directory: Path
) -> None:
    url = f"file://{directory}/run"
    model = nn.Linear(SIDE, SIDE, bias=False)
    quick = {"sync_every": 1, "poll_s": 0.1, "stop_after_rounds": 3}
    gm.init(url, model, algorithm="diloco", **quick, **settings)
    gc.collect()
    gc.disable()  # a collection belongs to no callback
    try:
        with watched_loops(limit_s=0.05) as watch:
            _train(url, model, directory)
    finally:
        gc.enable()
    assert watch.blocked == []


def _train(url: str, model: nn.Module, directory: Path) -> None:
    closer = gm.Closer(url)
    closing = threading.Thread(target=closer.run, kwargs={"until_done": True})
    closing.start()
    try:
        with gm.Learner(url, model, state_dir=directory / "state") as learner:
            while not learner.done:
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.mul_(0.99)
                learner.step(tokens=1)
    finally:
        closer.request_stop()
        closing.join()
