"""A run in memory, a clock in the test's hand, and contributions made by hand."""

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from gradientmail.clock import fresh_nonce
from gradientmail.closer.desk import Desk
from gradientmail.closer.spool import Spool
from gradientmail.codecs.streaming import decoded
from gradientmail.config import RunSettings
from gradientmail.learner.posts import encode_delta
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.operations.creating import create_run
from gradientmail.records import canonical, keys
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.manifest import PayloadRef
from gradientmail.records.presence import Presence
from gradientmail.run import Run, Version, open_run
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.clock import ManualClock

T = TypeVar("T")

EVERYONE = frozenset({"ann", "bob"})
POLL_S = 1.0


async def inline(function: Callable[..., T], *arguments: Any) -> T:
    """Run a long function where it is called."""
    return function(*arguments)


@dataclass(frozen=True)
class Bench:
    """One run of one small model, opened."""

    store: Store
    clock: ManualClock
    rng: random.Random
    run: Run
    scratch: Path

    def desk(self, name: str = "closer", *, store: Store | None = None) -> Desk:
        """Return the desk of another closer: memory, spool and name of its own."""
        run = dataclasses.replace(self.run, mailbox=Mailbox(store)) if store else self.run
        return Desk(
            run=run,
            clock=self.clock,
            rng=random.Random(name),
            offload=inline,
            spool=Spool(self.scratch / name, run.mailbox.store),
            log=get_logger("gradientmail.closer", run=run.name, closer=name),
            name=name,
            term=1,
        )

    # -- what learners do --------------------------------------------------------------------

    def contribution(
        self, learner: str, base: Version, /, *, fill: float = 1.0, **changes: Any
    ) -> tuple[str, bytes]:
        """Return key and bytes of a contribution, every parameter moved by ``fill``.

        ``changes`` are to its record, behind the back of whoever computed it.
        """
        layout = self.run.layouts[base.fragment]
        payload_format = self.run.algorithm.delta_format(layout.numel)
        encoded = encode_delta(payload_format, layout, self.delta(base.fragment, fill))
        nonce = fresh_nonce(self.rng)
        record = ContributionRecord(
            run=self.run.name,
            learner=learner,
            incarnation="1" * 32,
            fragment=base.fragment,
            base=base.number,
            anchor=base.digest,
            steps=4,
            tokens=40,
            step_s=0.5,
            final=False,
            precision=self.run.algorithm.delta_dtype,
            norms=encoded.norms,
            digest=canonical.digest_of(memoryview(encoded.data)),
            nonce=nonce,
        )
        text = canonical.encode(replace(record, **changes)).decode()
        key = keys.mail(base.fragment, base.number, learner, nonce)
        return key, payload_format.header(text) + bytes(encoded.data)

    def delta(self, fragment: int, fill: float) -> Tensor:
        layout = self.run.layouts[fragment]
        delta = torch.zeros(layout.numel)
        for slot in layout.slots:
            delta[slot.offset : slot.offset + slot.numel] = fill
        return delta

    async def post(self, learner: str, base: Version, /, **changes: Any) -> str:
        """Post a contribution; return its key."""
        key, data = self.contribution(learner, base, **changes)
        await self.store.put(key, [data])
        return key

    async def show(self, learner: str, **fields: Any) -> None:
        """Write a presence."""
        presence = Presence(
            run=self.run.name,
            learner=learner,
            **{
                "incarnation": "1" * 32,
                "count": 1,
                "versions": (0,) * len(self.run.layouts),
                **fields,
            },
        )
        await self.run.mailbox.put_presence(presence)

    async def params(self, ref: PayloadRef, fragment: int = 0) -> Tensor:
        """Return published parameters."""
        data = await self.store.read(ref.key)
        assert data is not None
        form = self.run.algorithm.params_format(self.run.layouts[fragment].numel)
        return decoded(data, form, section="params")

    # -- time --------------------------------------------------------------------------------

    async def while_time_passes(self, act: Awaitable[T], *, seconds: float = 600.0) -> T:
        """Return what ``act`` does, poll after poll."""
        task = asyncio.ensure_future(act)
        try:
            for _ in range(int(seconds / POLL_S)):
                await self.clock.advance(POLL_S)
                if task.done():
                    return task.result()
        finally:
            task.cancel()
        raise AssertionError(f"not done after {seconds} s")


async def make_bench(scratch: Path, *, store: Store | None = None, **settings: Any) -> Bench:
    """Return the bench of a new run; by default its rounds wait for everyone."""
    store = store or MemoryStore()
    clock, rng = ManualClock(1000.0), random.Random(1)
    torch.manual_seed(0)
    await create_run(
        store,
        nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)),
        RunSettings(**{"quorum": 1, "grace_s": None, "poll_s": POLL_S, **settings}),
        clock=clock,
        rng=rng,
    )
    return Bench(store, clock, rng, await open_run(store), scratch)


@contextlib.asynccontextmanager
async def running(act: Awaitable[T]) -> AsyncIterator["asyncio.Future[T]"]:
    """Run ``act`` beside the test; it ends with the block."""
    task = asyncio.ensure_future(act)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
