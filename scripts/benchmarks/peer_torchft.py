"""What drives torchft's DiLoCo, in its own environment: one replica group, so no network waits.

Its lighthouse and its manager run in this process, as its tests have it; synchronization is by
gloo. Nothing of ours is imported here but models.
"""

import importlib
import logging
import os
from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from benchmarks.models import Trainer, compared, trainer


def overhead(kind: str, sync_every: int, fragments: int, repetitions: int) -> dict[str, Any]:
    """Train bare and under torchft's DiLoCo in turn, as ``benchmarks.overhead`` does."""
    torchft: Any = importlib.import_module("torchft")
    local_sgd: Any = importlib.import_module("torchft.local_sgd")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    cores = sorted(os.sched_getaffinity(0))
    theirs = trainer(kind)
    bare = Trainer(theirs.model, theirs.batch, theirs.tokens)  # its optimizer has no hooks
    os.sched_setaffinity(0, cores[-1:])
    coordination: Any = importlib.import_module("torchft.coordination")
    lighthouse = coordination.LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=10)),
        load_state_dict=theirs.model.load_state_dict,
        state_dict=theirs.model.state_dict,
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse.address().replace("0.0.0.0", "127.0.0.1"),
        hostname="127.0.0.1",
        replica_id="replica",
    )
    parts = _parts(theirs.model, fragments)
    outer = [
        torch.optim.SGD(part.parameters(), lr=0.7, momentum=0.9, nesterov=True) for part in parts
    ]
    os.sched_setaffinity(0, cores[:1])
    with local_sgd.DiLoCo(manager, parts, theirs.optimizer, outer, sync_every=sync_every):
        found = compared(bare.step, theirs.step, sync_every, repetitions)
    manager.shutdown()
    return found


def _parts(model: nn.Module, count: int) -> list[nn.Module]:
    """Deal the modules that hold parameters to ``count`` parts, in order."""
    leaves = [
        module
        for module in model.modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    return [
        nn.ModuleList(leaves[len(leaves) * i // count : len(leaves) * (i + 1) // count])
        for i in range(count)
    ]
