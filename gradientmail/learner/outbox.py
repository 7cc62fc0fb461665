"""The outbox: encodes drafts in the order given, posts them side by side, keeps the residuals.

    draft -- encoded --> posting -- acknowledged ----------> posted -- forget ----> gone
                         posting, posted -- give_back -----> gone, its data in the residual

Uploads go side by side, the newest first where there are many: it is the likeliest to count. One
whose round is committed is given up.

There is one residual for each fragment: what quantization lost, to be added to the next
contribution (error feedback), and all of a contribution that no commit used.

What is not acknowledged is part of the learner's state: after a restart the same bytes are posted
under the same name.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from gradientmail.algorithm import DELTA
from gradientmail.codecs.noise import Noise
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import decoded
from gradientmail.errors import PayloadError
from gradientmail.learner.desk import Desk
from gradientmail.learner.posts import Draft, Encoded, encode_delta
from gradientmail.records import canonical
from gradientmail.records.contribution import ContributionRecord
from gradientmail.tasks import NewestFirst, persistently

T = TypeVar("T")

UPLOADS_AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Posting:
    """A contribution as it is posted: its name, and its bytes."""

    key: str
    fragment: int
    base: int
    steps: int
    header: bytes
    data: bytearray


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
        self._lock = threading.Lock()
        self._left = 0
        self._open: dict[str, tuple[Posting, asyncio.Task[None]]] = {}
        self._returning: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._seats = NewestFirst(UPLOADS_AT_ONCE)

    # -- orders, from the training side ------------------------------------------------------

    def post(self, draft: Draft) -> None:
        """Encode and post ``draft``."""
        self._order(lambda: self._encode(draft))

    def give_back(self, fragment: int, key: str) -> None:
        """No commit used the contribution under ``key``: add its data to the residual."""
        self._order(lambda: self._withdraw(fragment, key))

    def forget(self, key: str) -> None:
        """A commit has spoken of the contribution under ``key``: it need not be acknowledged.

        At once, unless it is still to be encoded: as an order it would put off the next saving.
        """
        with self._lock:
            posting, task = self._open.pop(key, (None, None))
        if task is not None:
            self._loop.call_soon_threadsafe(task.cancel)
        if posting is None:
            self._order(lambda: self._forget(key))

    def start_over(self, fragment: int) -> None:
        """Another self of ours has sent what is left of ``fragment``: drop the residual."""
        self._order(lambda: self._drop_residual(fragment))

    def owe(self, fragment: int, vector: Tensor) -> None:
        """Send ``vector``, flat float32, with the next contribution to ``fragment``."""
        self._order(lambda: self._add(fragment, vector))

    # -- what a restart needs ----------------------------------------------------------------

    def state(self) -> dict[str, Any] | None:
        """Return a tree for ``restore``; None while an order is being carried out: ask again."""
        with self._lock:
            if self._left:
                return None
            return {
                "residuals": list(self.residuals),
                "postings": [
                    _tree_of(one) for one, task in self._open.values() if not task.done()
                ],
                "returning": [(fragment, key) for key, (fragment, _) in self._returning.items()],
            }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, before the first order."""
        for p, rest in enumerate(state["residuals"]):
            self.residuals[p] = None if rest is None else rest.to(self._desk.device)
        for tree in state["postings"]:
            self._order(partial(self._repost, _posting_of(tree)))
        for fragment, key in state["returning"]:
            self.give_back(fragment, key)

    @property
    def settled(self) -> bool:
        """Whether every order is carried out and every draft acknowledged by the store."""
        with self._lock:
            on_their_way = any(not task.done() for _, task in self._open.values())
            return not (self._left or on_their_way or self._returning)

    async def until_settled(self) -> None:
        """Return once everything posted is acknowledged."""
        while not self.settled:
            self._changed.clear()
            await self._changed.wait()

    # -- carrying orders out -----------------------------------------------------------------

    async def run(self) -> None:
        """Carry out orders, one after another; uploads go on beside them."""
        try:
            while True:
                order = await self._orders.get()
                await order()
                with self._lock:
                    self._left -= 1
                self._changed.set()
        finally:
            for _, task in (*self._open.values(), *self._returning.values()):
                task.cancel()

    def _order(self, order: Callable[[], Awaitable[None]]) -> None:
        with self._lock:
            self._left += 1
        self._loop.call_soon_threadsafe(self._orders.put_nowait, order)

    def _begin(self, act: Awaitable[None]) -> asyncio.Task[None]:
        """Do something beside the orders; when the store refuses it, the outbox ends too."""
        task = asyncio.ensure_future(act)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            self._order(lambda: task)

    def _format(self, fragment: int) -> PayloadFormat:
        return self._run.algorithms[fragment].delta_format(self._run.layouts[fragment].numel)

    async def _encode(self, draft: Draft) -> None:
        try:
            encoded: Encoded
            encoded, digest = await self._desk.offload(self._encoded, draft)
        except PayloadError as exc:
            self._refused(draft.key, str(exc))
            return
        posting = Posting(
            key=draft.key,
            fragment=draft.fragment,
            base=draft.base.number,
            steps=draft.trained.steps,
            header=self._header(draft, encoded, digest),
            data=encoded.data,
        )
        with self._lock:
            self.residuals[draft.fragment] = (
                encoded.rest if self._settings.error_feedback else None
            )
            self._open[draft.key] = posting, self._begin(self._upload(posting))

    def _encoded(self, draft: Draft) -> tuple[Encoded, str]:
        """Encode a draft with its fragment's residual; return the digest of its data, too."""
        fragment, delta, residual = draft.fragment, draft.delta, self.residuals[draft.fragment]
        if residual is not None:
            delta.add_(residual, alpha=self._decay)
        noise = Noise(int(draft.nonce, 16)) if self._settings.rounding == "stochastic" else None
        layout = self._run.layouts[fragment]
        encoded = encode_delta(self._format(fragment), layout, delta, noise)
        self._keep_parameters(fragment, encoded.rest)
        return encoded, canonical.digest_of(memoryview(encoded.data))

    def _header(self, draft: Draft, encoded: Encoded, digest: str) -> bytes:
        record = ContributionRecord(
            run=self._run.name,
            learner=self._desk.name,
            incarnation=self._desk.incarnation,
            fragment=draft.fragment,
            base=draft.base.number,
            anchor=draft.base.digest,
            steps=draft.trained.steps,
            tokens=draft.trained.tokens,
            samples=draft.trained.samples,
            step_s=draft.step_s,
            final=draft.final,
            precision=self._run.algorithms[draft.fragment].delta_dtype,
            norms=encoded.norms,
            digest=digest,
            nonce=draft.nonce,
        )
        return self._format(draft.fragment).header(canonical.encode(record).decode())

    async def _upload(self, posting: Posting) -> None:
        """Put until it is acknowledged; the name is ours alone, so it may be put twice."""
        buffers: list[bytes | memoryview] = [posting.header, memoryview(posting.data)]
        extra = {"fragment": posting.fragment, "version": posting.base}
        async with self._seats:
            await self._persist(lambda: self._run.mailbox.store.put(posting.key, buffers), extra)
        self._desk.log.info("published %d steps", posting.steps, extra=extra)

    async def _repost(self, posting: Posting) -> None:
        """Go on posting what an earlier self could not."""
        with self._lock:
            self._open[posting.key] = posting, self._begin(self._upload(posting))

    async def _forget(self, key: str) -> None:
        self._close(key)

    def _close(self, key: str) -> Posting | None:
        """Upload it no longer."""
        with self._lock:
            posting, task = self._open.pop(key, (None, None))
        if task is not None:
            task.cancel()
        return posting

    # -- residuals ---------------------------------------------------------------------------

    async def _add(self, fragment: int, vector: Tensor) -> None:
        residual = self.residuals[fragment]
        self.residuals[fragment] = vector if residual is None else residual + vector

    async def _drop_residual(self, fragment: int) -> None:
        self.residuals[fragment] = None

    async def _withdraw(self, fragment: int, key: str) -> None:
        posting = self._close(key)
        if posting is not None:
            await self._add_to_residual(fragment, key, posting.data)
        elif key not in self._returning:  # posted by an earlier incarnation, whose memory is gone
            self._returning[key] = fragment, self._begin(self._fetch_back(fragment, key))

    async def _fetch_back(self, fragment: int, key: str) -> None:
        extra = {"fragment": fragment}
        data = await self._persist(lambda: self._run.mailbox.store.read(key), extra)
        self._order(lambda: self._take_back(fragment, key, data))

    async def _take_back(self, fragment: int, key: str, data: bytes | None) -> None:
        if data is None:
            self._desk.log.warning("%s was swept while we were away, its steps are lost", key)
        else:
            await self._add_to_residual(fragment, key, data)
        with self._lock:
            del self._returning[key]

    async def _add_to_residual(self, fragment: int, key: str, data: bytes | bytearray) -> None:
        try:
            residual: Tensor = await self._desk.offload(self._residual_with, fragment, data)
        except PayloadError as exc:
            self._desk.log.warning("%s is damaged, its steps are lost: %s", key, exc)
            return
        self.residuals[fragment] = residual

    def _residual_with(self, fragment: int, data: bytes | bytearray) -> Tensor:
        """Return the residual and all of a contribution; ``data`` may lack the header."""
        payload_format = self._format(fragment)
        if len(data) == payload_format.data_bytes:
            data = payload_format.header(None) + data
        delta = decoded(data, payload_format, section=DELTA).to(self._desk.device)
        delta.div_(self._decay)  # all of it shall be sent again
        self._keep_parameters(fragment, delta)
        residual = self.residuals[fragment]
        return delta if residual is None else delta.add_(residual)

    def _keep_parameters(self, fragment: int, rest: Tensor) -> None:
        """Clear the buffers in what is to be sent later.

        A statistic is a state: the next contribution says all of it, whatever this one left out.
        Added once more, a variance would overshoot, below zero in the end.
        """
        rest[self._run.layouts[fragment].parameters_end :] = 0.0

    async def _persist(self, act: Callable[[], Awaitable[T]], extra: dict[str, int]) -> T:
        desk, pause_s = self._desk, self._settings.poll_s
        return await persistently(act, desk.clock, desk.log, pause_s=pause_s, fields=extra)


def _tree_of(posting: Posting) -> dict[str, Any]:
    return {
        "key": posting.key,
        "fragment": posting.fragment,
        "base": posting.base,
        "steps": posting.steps,
        "header": posting.header,
        "data": torch.frombuffer(posting.data, dtype=torch.uint8),
    }


def _posting_of(tree: dict[str, Any]) -> Posting:
    return Posting(**{**tree, "data": bytearray(tree["data"].numpy().data)})
