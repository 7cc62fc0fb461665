"""The exchange: a learner's side of the store, in the background of its training.

It runs in an event loop of its own thread; the training thread gives it drafts and takes arrivals,
and neither ever waits for the other. All it needs to know comes from one read of ``head.json`` a
poll; what the head says is then read from the commits themselves.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import PARAMS, UPDATE
from gradientmail.codecs.layout import chunks
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import BufferSource, PayloadReader
from gradientmail.errors import (
    PayloadError,
    RecordError,
    StoreFullError,
    StoreUnavailableError,
)
from gradientmail.learner.desk import Desk
from gradientmail.learner.outbox import Outbox
from gradientmail.learner.posts import Arrival, Draft, Progress
from gradientmail.protocol.publishing import oldest_open_round
from gradientmail.records import canonical
from gradientmail.records.commit import RoundRecord
from gradientmail.records.head import Head
from gradientmail.records.manifest import PayloadRef
from gradientmail.records.presence import Presence
from gradientmail.run import Version
from gradientmail.tasks import together

BEATS_PER_PRESENCE = 4

LOST_AFTER_POLLS = 10
"""So often the newest version's payload is looked for; a sweep leaves it and moves on sooner."""


class Exchange:
    """Create it inside a running loop, ``join``, then ``run``.

    Attributes:
        outbox: Takes drafts.
        calling: Rounds whose grace window is open, by the newest head.
        asked: Rounds that ask for this learner, by the newest head; None: all do.
        ending: The run has ended, or someone asked it to.
        finished: The run has ended: no further commit comes.
        progress: Set by the training side; what presence says.
    """

    def __init__(self, desk: Desk, *, news: Callable[[], None]) -> None:
        self.outbox = Outbox(desk, refused=self._refuse)
        self.calling: frozenset[int] = frozenset()
        everyone = desk.run.manifest.settings.selection == "all"
        self.asked: frozenset[int] | None = None if everyone else frozenset()
        self.ending = self.finished = False
        self.progress = Progress(at=desk.clock.now(), versions=(0,) * len(desk.run.layouts))
        self._desk, self._run, self._clock, self._news = desk, desk.run, desk.clock, news
        self._settings = desk.run.manifest.settings
        self._held: dict[int, Arrival] = {}
        self._arrivals: dict[int, Arrival] = {}
        self._refusals: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._waiting: dict[int, float] = {}
        self._following: dict[int, asyncio.Task[None]] = {}
        self._beats = 0
        self._being_seen = asyncio.Lock()
        self._others_beat: tuple[str, int] | None = None

    # -- for the training side ---------------------------------------------------------------

    def post(self, draft: Draft) -> None:
        """Send a contribution on its way."""
        self.expect(draft.fragment)
        self.outbox.post(draft)

    def expect(self, fragment: int) -> None:
        """A commit of ``fragment`` is due: look for it even if no head tells of it."""
        self._waiting[fragment] = self._clock.now()

    def give_back(self, fragment: int, key: str) -> None:
        """Add an unused contribution to the residual."""
        self.outbox.give_back(fragment, key)

    def forget(self, key: str) -> None:
        """A commit has spoken of a contribution."""
        self.outbox.forget(key)

    def start_over(self, fragment: int) -> None:
        """Drop the residual: another self has sent it."""
        self.outbox.start_over(fragment)

    def take(self) -> tuple[list[Arrival], list[tuple[str, str]]]:
        """Return what arrived since the last call, and (key, reason) of drafts refused."""
        with self._lock:
            arrivals, refusals = list(self._arrivals.values()), self._refusals
            self._arrivals, self._refusals = {}, []
        for arrival in arrivals:
            self._waiting.pop(arrival.version.fragment, None)
        return arrivals, refusals

    def _refuse(self, key: str, reason: str) -> None:
        with self._lock:
            self._refusals.append((key, reason))
        self._news()

    # -- joining -----------------------------------------------------------------------------

    async def join(self, held: Mapping[int, Arrival]) -> None:
        """Bring every fragment to its newest version, from ``held`` where it is given."""
        self._held = dict(held)
        newest = await self._run.newest_of_all()
        await asyncio.gather(*(self._adopt(version) for version in newest))
        self._look_for_last_round()

    # -- running -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Post, watch and beat until cancelled."""
        await together(self.outbox.run(), self._watch(), self._beat())

    async def leave(self) -> None:
        """Say that we are gone, so that no round waits for us."""
        await self._put_presence(left=True)

    async def _watch(self) -> None:
        try:
            while True:
                await self._if_in_reach(self._look())
                await self._clock.sleep(self._settings.poll_s)
        finally:
            for task in self._following.values():
                task.cancel()

    async def _if_in_reach(self, act: Coroutine[Any, Any, None]) -> None:
        try:
            await act
        except StoreUnavailableError as exc:
            self._desk.log.warning("the store is out of reach, trying again: %s", exc)

    async def _look(self) -> None:
        head = await self._run.mailbox.head()
        if head is not None and head.run == self._run.name:
            await self._follow(head)
            numbered = enumerate(head.versions[: len(self._held)])
            ahead = {p: v for p, v in numbered if v > self._held[p].version.number}
        else:
            ahead = {}
        for fragment in self._overdue():
            ahead.setdefault(fragment, self._held[fragment].version.number + 1)
        self._follow_up(ahead)

    def _follow_up(self, ahead: Mapping[int, int]) -> None:
        """Catch up with each fragment in a task of its own: none waits for another's payload."""
        for fragment in [p for p, task in self._following.items() if task.done()]:
            self._following.pop(fragment).result()
        for fragment, hint in ahead.items():
            if fragment not in self._following:
                catching_up = self._if_in_reach(self._catch_up(fragment, hint))
                self._following[fragment] = asyncio.create_task(catching_up)

    async def _follow(self, head: Head) -> None:
        """Take from the head what is only a hint; whether the run ends is read from its source."""
        calling = frozenset(head.calling)
        if calling != self.calling:
            self.calling = calling
            self._news()
        asked = frozenset(r for r, names in head.asked if self._desk.name in names)
        if self.asked is not None and asked != self.asked:
            self.asked = asked
            self._news()
        self.finished = self.finished or (self.ending and head.done)
        if head.stopping and not self.ending:
            await self._look_for_stop()

    async def _look_for_stop(self) -> None:
        if await self._run.mailbox.stop_requested():
            self._end()

    def _look_for_last_round(self) -> None:
        """The manifest says which round is the last one."""
        last = self._settings.stop_after_rounds
        if last is None or len(self._held) < len(self._run.layouts):
            return
        versions = [self._held[p].version.number for p in range(len(self._held))]
        if oldest_open_round(self._run.algorithm.schedule, versions) >= last:
            self.finished = True
            self._end()

    def _end(self) -> None:
        if not self.ending:
            self.ending = True
            self._news()

    def _overdue(self) -> list[int]:
        """Return fragments whose commit should be there: the head may be stale."""
        now, poll_s = self._clock.now(), self._settings.poll_s
        return [
            fragment
            for fragment, since in list(self._waiting.items())
            if now - since > self._held[fragment].version.estimates.timeout(poll_s)
        ]

    async def _catch_up(self, fragment: int, hint: int) -> None:
        """Look for the version a hint speaks of, or, where it speaks wrong, for the next one."""
        following = self._held[fragment].version.number + 1
        for number in dict.fromkeys((hint, following)):
            if await self._run.version(fragment, number) is not None:
                await self._adopt(await self._run.newest(fragment, number))
                return
        self.expect(fragment)  # not yet: ask again in a while

    async def _adopt(self, newest: Version) -> None:
        """Fetch a version and hand it to the training side."""
        held = self._held.get(newest.fragment)
        if held is not None and newest.number <= held.version.number:
            return
        newest, params = await self._newest_params(newest, held)
        history = await self._history(newest, held)
        with self._lock:
            before = self._arrivals.get(newest.fragment)
            arrival = Arrival(
                version=newest,
                params=params,
                history=(before.history if before else ()) + history,
            )
            self._held[newest.fragment] = self._arrivals[newest.fragment] = arrival
        self._look_for_last_round()
        self._news()

    async def _history(self, newest: Version, held: Arrival | None) -> tuple[RoundRecord, ...]:
        """Return the records that may name a contribution of ours against the held version."""
        if held is None or newest.record is None:
            return ()
        first = held.version.number + 1
        last = min(newest.number, first + self._settings.max_staleness + 1)
        found = [await self._run.version(newest.fragment, n) for n in range(first, last)]
        records = [version.record for version in found if version and version.record]
        return (*records, newest.record)

    # -- payloads ----------------------------------------------------------------------------

    async def _newest_params(
        self, newest: Version, held: Arrival | None
    ) -> tuple[Version, Tensor]:
        """Return the newest version whose parameters can be had: an older one may be swept.

        Raises:
            RecordError: those of the newest version are lost, which no sweep does.
        """
        polls = 0
        while True:
            try:
                return newest, await self._params(newest, held)
            except PayloadError as exc:
                extra = {"fragment": newest.fragment, "version": newest.number}
                self._desk.log.warning("looking for a newer version: %s", exc, extra=extra)
            await self._clock.sleep(self._settings.poll_s)
            newer = await self._run.newest(newest.fragment, newest.number)
            polls = polls + 1 if newer.number == newest.number else 0
            if polls == LOST_AFTER_POLLS:
                await self._require_swept(newest)
                polls = 0
            newest = newer

    async def _require_swept(self, version: Version) -> None:
        boundary = await self._run.mailbox.newest_boundary(version.fragment)
        if version.number > boundary:
            reason = f"the payload of the newest version, {version.number}, is missing or damaged"
            raise RecordError(version.params.key, reason)

    async def _params(self, newest: Version, held: Arrival | None) -> Tensor:
        """Return the parameters of ``newest``: by its update where that is shorter."""
        if held is not None and newest.params == held.version.params:
            return held.params
        if (updated := await self._by_update(newest, held)) is not None:
            return updated
        params_format = self._run.algorithm.params_format(self._run.layouts[newest.fragment].numel)
        data, offload = await self._payload(newest.params), self._desk.offload
        params: Tensor = await offload(_decoded, params_format, data, self._desk.device)
        return params

    async def _by_update(self, newest: Version, held: Arrival | None) -> Tensor | None:
        """Return what an update makes of the held parameters; None where none leads on."""
        update_format = self._run.algorithm.update_format(self._run.layouts[newest.fragment].numel)
        if not (held and newest.update and update_format and _follows(newest, held.version)):
            return None
        try:
            data = await self._payload(newest.update)
        except PayloadError as exc:
            extra = {"fragment": newest.fragment, "version": newest.number}
            self._desk.log.warning("taking the parameters instead: %s", exc, extra=extra)
            return None
        updated: Tensor = await self._desk.offload(_updated, held.params, update_format, data)
        return updated

    async def _payload(self, ref: PayloadRef) -> bytes:
        data = await self._run.mailbox.store.read(ref.key, 0, ref.size_bytes + 1)
        if data is None:
            raise PayloadError(f"{ref.key} is gone: swept, or lost")
        if len(data) != ref.size_bytes or canonical.digest_of(data) != ref.digest:
            raise PayloadError(f"{ref.key} differs from its record's digest")
        return data

    # -- presence ----------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Be seen for as long as training goes on; a loop that hangs falls silent."""
        while True:
            silent_s = self._clock.now() - self.progress.at
            if self.progress.holding or silent_s < self._settings.presence_s:
                try:
                    await self._warn_of_twins()
                    await self._look_for_stop()
                    await self._put_presence(left=False)
                except (StoreUnavailableError, StoreFullError) as exc:
                    self._desk.log.warning("could not be seen: %s", exc)
            await self._clock.sleep(self._settings.presence_s / BEATS_PER_PRESENCE)

    async def _warn_of_twins(self) -> None:
        """Two processes under one name do no harm, but only one of them counts."""
        there = await self._run.mailbox.presence(self._desk.name)
        if there is None or there.incarnation == self._desk.incarnation or there.left:
            return
        seen = there.incarnation, there.count
        if self._others_beat is not None and seen != self._others_beat:
            self._desk.log.warning(
                "another process trains under our name: give each its own --name"
            )
        self._others_beat = seen

    async def _put_presence(self, *, left: bool) -> None:
        self._beats += 1
        progress = self.progress
        presence = Presence(
            run=self._run.name,
            learner=self._desk.name,
            incarnation=self._desk.incarnation,
            count=self._beats,
            versions=progress.versions,
            steps=progress.steps,
            tokens=progress.tokens,
            step_s=progress.step_s,
            loss=progress.loss,
            posted=progress.posted,
            applied=progress.applied,
            dropped=progress.dropped,
            rejected=progress.rejected,
            bytes_up=self._desk.meter.up_bytes,
            bytes_down=self._desk.meter.down_bytes,
            requests=self._desk.meter.requests,
            waited_s=progress.waited_s,
            device=str(self._desk.device),
            seen_at=self._clock.wall(),
            left=left,
        )
        await asyncio.shield(self._write(presence))

    async def _write(self, presence: Presence) -> None:
        """Write in the order of calls: what was cancelled may go on, but lands before the next."""
        async with self._being_seen:
            await self._run.mailbox.put_presence(presence)


def _follows(version: Version, before: Version) -> bool:
    return version.number == before.number + 1


def _decoded(payload_format: PayloadFormat, data: bytes, device: torch.device) -> Tensor:
    reader = PayloadReader(payload_format, BufferSource(data))
    params = torch.empty(payload_format.numel, device=device)
    for start, stop in chunks(0, payload_format.numel):
        reader.read(PARAMS, start, stop, out=params[start:stop])
    return params


def _updated(held: Tensor, update_format: PayloadFormat, data: bytes) -> Tensor:
    """Return ``held`` plus the update, the same addition the closer made."""
    reader = PayloadReader(update_format, BufferSource(data))
    params = torch.empty_like(held)
    for start, stop in chunks(0, update_format.numel):
        update = reader.read(UPDATE, start, stop).to(held.device)
        torch.add(held[start:stop], update, out=params[start:stop])
    return params
