"""The outbox: encodes drafts in the order given, posts them side by side, keeps the residuals.

    draft -- encoded --> posting -- acknowledged ----------> posted -- forget ----> gone
                         posting, posted -- give_back -----> gone, its data in the residual

There is one residual for each fragment: what quantization lost, to be added to the next
contribution (error feedback), and all of a contribution that no commit used.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from gradientmail.algorithm import DELTA
from gradientmail.codecs.layout import chunks
from gradientmail.codecs.noise import Noise
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import BufferSource, PayloadReader
from gradientmail.errors import PayloadError
from gradientmail.learner.desk import Desk
from gradientmail.learner.posts import Draft, Encoded, encode_delta
from gradientmail.records import canonical
from gradientmail.records.contribution import ContributionRecord
from gradientmail.tasks import persistently

T = TypeVar("T")


@dataclass(frozen=True)
class _Posting:
    draft: Draft
    data: bytearray
    task: asyncio.Task[None]


class Outbox:
    """One learner's contributions on their way. Its methods may be called from another thread.

    Args:
        refused: Called with key and reason when a draft cannot be sent at all.
    """

    def __init__(self, desk: Desk, *, refused: Callable[[str, str], None]) -> None:
        self.residuals: list[Tensor | None] = [None] * len(desk.run.layouts)
        self._desk, self._run, self._refused = desk, desk.run, refused
        self._settings = desk.run.manifest.settings
        self._decay = self._settings.error_feedback_decay if self._settings.error_feedback else 1.0
        self._loop = asyncio.get_running_loop()
        self._orders: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._open: dict[str, _Posting] = {}
        self._unsettled: set[str] = set()
        self._starting_over: set[int] = set()
        self._acknowledged = asyncio.Event()

    # -- orders, from the training side ------------------------------------------------------

    def post(self, draft: Draft) -> None:
        """Encode and post ``draft``."""
        self._unsettled.add(draft.key)
        self._order(lambda: self._encode(draft))

    def give_back(self, fragment: int, key: str) -> None:
        """No commit used the contribution under ``key``: add its data to the residual."""
        self._unsettled.add(key)
        self._order(lambda: self._withdraw(fragment, key))

    def forget(self, key: str) -> None:
        """A commit has spoken of the contribution under ``key``: it need not be acknowledged."""
        if key in self._open:
            self._unsettled.discard(key)
        self._order(lambda: self._forget(key))

    def start_over(self, fragment: int) -> None:
        """Another self of ours has sent what is left of ``fragment``: drop the residual."""
        self._starting_over.add(fragment)
        self._order(lambda: self._drop_residual(fragment))

    @property
    def settled(self) -> bool:
        """Whether every order is carried out and every draft acknowledged by the store."""
        return not self._unsettled and not self._starting_over

    # -- carrying them out -------------------------------------------------------------------

    async def run(self) -> None:
        """Carry out orders, one after another; uploads go on beside them."""
        try:
            while True:
                order = await self._orders.get()
                await order()
        finally:
            for posting in self._open.values():
                posting.task.cancel()

    async def until_settled(self) -> None:
        """Return once everything posted is acknowledged."""
        while not self.settled:
            self._acknowledged.clear()
            await self._acknowledged.wait()

    def _order(self, order: Callable[[], Awaitable[None]]) -> None:
        self._loop.call_soon_threadsafe(self._orders.put_nowait, order)

    def _settle(self, key: str) -> None:
        self._unsettled.discard(key)
        self._acknowledged.set()

    def _format(self, fragment: int) -> PayloadFormat:
        return self._run.algorithms[fragment].delta_format(self._run.layouts[fragment].numel)

    async def _encode(self, draft: Draft) -> None:
        fragment, residual = draft.fragment, self.residuals[draft.fragment]
        layout, payload_format = self._run.layouts[fragment], self._format(fragment)
        delta = draft.delta if residual is None else draft.delta.add_(residual, alpha=self._decay)
        noise = Noise(int(draft.nonce, 16)) if self._settings.rounding == "stochastic" else None
        try:
            encoded: Encoded = await self._desk.offload(
                encode_delta, payload_format, layout, delta, noise
            )
        except PayloadError as exc:
            self._settle(draft.key)
            self._refused(draft.key, str(exc))
            return
        feedback = self._settings.error_feedback
        self.residuals[fragment] = (
            self._of_parameters(fragment, encoded.rest) if feedback else None
        )
        header = self._header(draft, encoded)
        task = asyncio.create_task(self._upload(draft, [header, memoryview(encoded.data)]))
        task.add_done_callback(self._await)
        self._open[draft.key] = _Posting(draft, encoded.data, task)

    def _await(self, upload: asyncio.Task[None]) -> None:
        """Let an upload that the store refuses end the outbox too."""
        if not upload.cancelled():
            self._orders.put_nowait(lambda: upload)

    def _header(self, draft: Draft, encoded: Encoded) -> bytes:
        record = ContributionRecord(
            run=self._run.name,
            learner=self._desk.name,
            incarnation=self._desk.incarnation,
            fragment=draft.fragment,
            base=draft.base.number,
            anchor=draft.base.digest,
            steps=draft.steps,
            tokens=draft.tokens,
            step_s=draft.step_s,
            final=draft.final,
            precision=self._run.algorithms[draft.fragment].delta_dtype,
            norms=encoded.norms,
            digest=canonical.digest_of(memoryview(encoded.data)),
            nonce=draft.nonce,
        )
        return self._format(draft.fragment).header(canonical.encode(record).decode())

    async def _upload(self, draft: Draft, buffers: Sequence[bytes | memoryview]) -> None:
        """Put until it is acknowledged; the name is ours alone, so it may be put twice."""
        await self._persist(lambda: self._run.mailbox.store.put(draft.key, buffers))
        extra = {"fragment": draft.fragment, "version": draft.base.number}
        self._desk.log.debug("posted %d steps", draft.steps, extra=extra)
        self._settle(draft.key)

    async def _forget(self, key: str) -> None:
        posting = self._open.pop(key, None)
        if posting is not None:
            posting.task.cancel()
        self._settle(key)

    async def _drop_residual(self, fragment: int) -> None:
        self.residuals[fragment] = None
        self._starting_over.discard(fragment)
        self._acknowledged.set()

    async def _withdraw(self, fragment: int, key: str) -> None:
        posting = self._open.pop(key, None)
        if posting is not None:
            posting.task.cancel()
            data: bytes | None = self._format(fragment).header(None) + bytes(posting.data)
        else:  # posted by an earlier incarnation, whose memory is gone
            data = await self._persist(lambda: self._run.mailbox.store.read(key))
        if data is None:
            self._desk.log.warning("%s was swept while we were away, its steps are lost", key)
        else:
            await self._add_to_residual(fragment, key, data)
        self._settle(key)

    async def _add_to_residual(self, fragment: int, key: str, data: bytes) -> None:
        residual = self.residuals[fragment]
        try:
            delta: Tensor = await self._desk.offload(_decoded, self._format(fragment), data)
        except PayloadError as exc:
            self._desk.log.warning("%s is damaged, its steps are lost: %s", key, exc)
            return
        delta = delta.to(self._desk.device).div_(self._decay)  # all of it shall be sent again
        delta = self._of_parameters(fragment, delta)
        self.residuals[fragment] = delta if residual is None else residual + delta

    def _of_parameters(self, fragment: int, rest: Tensor) -> Tensor:
        """Return ``rest`` without its buffers.

        A statistic is a state: the next contribution says all of it, whatever this one left out.
        Added once more, a variance would overshoot, below zero in the end.
        """
        rest[self._run.layouts[fragment].parameters_end :] = 0.0
        return rest

    async def _persist(self, act: Callable[[], Awaitable[T]]) -> T:
        pause_s = self._settings.poll_s
        return await persistently(act, self._desk.clock, self._desk.log, pause_s=pause_s)


def _decoded(payload_format: PayloadFormat, data: bytes) -> Tensor:
    reader = PayloadReader(payload_format, BufferSource(data))
    delta = torch.empty(payload_format.numel)
    for start, stop in chunks(0, payload_format.numel):
        reader.read(DELTA, start, stop, out=delta[start:stop])
    return delta
