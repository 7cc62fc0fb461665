"""One term: the rounds of every fragment, side by side, and what learners are told of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from gradientmail.closer.desk import Desk
from gradientmail.closer.fleet import Fleet
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.closer.sweeper import Sweeper
from gradientmail.errors import RecordError, StoreError, StoreUnavailableError
from gradientmail.protocol.publishing import oldest_open_round
from gradientmail.protocol.selection import Everyone
from gradientmail.records.head import Head, Standing, Voucher
from gradientmail.run import Version
from gradientmail.tasks import first_of, persistently, race, together

T = TypeVar("T")

STOP_LOOK_POLLS = 5
"""Polls between two looks at whether a stop was requested."""

LOOKS_TO_END = 3
"""Looks in a row that must find nothing to close; between them every open round looks too."""


class TermOfOffice:
    """What a closer does while it holds the lease."""

    def __init__(self, desk: Desk, fleet: Fleet, present: Sequence[Version]) -> None:
        self._desk = desk
        self._fleet = fleet
        self._settings = desk.run.manifest.settings
        self._closers = [
            FragmentCloser(desk, version, partial(self._beside, version.fragment))
            for version in present
        ]
        self._voucher: Voucher | None = None
        self._sweepers = [Sweeper(desk, fleet, p) for p in range(len(present))]
        self._turn = asyncio.Condition()
        self._head_changed = asyncio.Event()
        self._telling = asyncio.Lock()
        self._to_sweep: asyncio.Queue[int] = asyncio.Queue()
        self._calling: set[int] = set()
        self._asked: dict[int, frozenset[str]] = {}
        self._ended = asyncio.Event()
        self._stopping = False
        self._idle_looks = 0
        self._done = False

    def call(self, round_index: int) -> None:
        """Tell learners that the grace window of a round is open."""
        if round_index not in self._calling:
            self._calling.add(round_index)
            self._head_changed.set()

    async def run(self, *, until_done: bool) -> None:
        """Serve; return once the run is done, or never."""
        rounds = self._all_rounds(until_done=until_done)
        await race(rounds, self._watch(), self._tell(), self._sweep())

    # -- rounds ----------------------------------------------------------------------------

    async def _all_rounds(self, *, until_done: bool) -> None:
        self._head_changed.set()
        fragments = (self._rounds_of(closer) for closer in self._closers)
        await race(together(*fragments), self._ended.wait())
        self._done = True
        await self._persist(self._put_head)
        self._desk.log.info("the run is done")
        if not until_done:
            self._desk.log.info("staying until told to stop; --until-done would end here")
            await asyncio.Event().wait()

    async def _rounds_of(self, closer: FragmentCloser) -> None:
        """Close one fragment's rounds in turn: its next one is open once it is near the oldest."""
        last = self._settings.stop_after_rounds
        while last is None or closer.round_index < last:
            async with self._turn:
                await self._turn.wait_for(lambda: closer.round_index < self._horizon())
            closed = closer.round_index
            version = await self._persist(
                lambda: closer.close_next(lambda: self._taking_part(closer), self.call)
            )
            self._voucher = closer.voucher or self._voucher
            self._calling.discard(closed)
            self._asked.pop(closed, None)
            self._head_changed.set()
            self._to_sweep.put_nowait(version.fragment)
            async with self._turn:
                self._turn.notify_all()

    def _taking_part(self, closer: FragmentCloser) -> frozenset[str]:
        """Return which live learners an open round waits for; tell them where that changes."""
        round_index = closer.round_index
        rule = self._desk.run.algorithm.selection
        if rule == Everyone():
            return self._fleet.live()
        asked = rule.asked(self._desk.run.name, round_index, self._fleet.tags())
        if self._asked.get(round_index) != asked:
            self._asked[round_index] = asked
            self._head_changed.set()
        return asked

    def _horizon(self) -> int:
        """Return the first round no learner can have published yet."""
        schedule = self._desk.run.algorithm.schedule
        return oldest_open_round(schedule, self._versions()) + schedule.in_flight

    def _versions(self) -> tuple[int, ...]:
        return tuple(closer.present.number for closer in self._closers)

    def _beside(self, fragment: int) -> tuple[Standing, ...] | None:
        """Return where the other fragments stand; None until a round of each was closed."""
        others = [closer for closer in self._closers if closer.present.fragment != fragment]
        standings = [standing for closer in others if (standing := closer.standing)]
        return tuple(standings) if len(standings) == len(others) else None

    async def _persist(self, act: Callable[[], Awaitable[T]]) -> T:
        return await persistently(
            act, self._desk.clock, self._desk.log, pause_s=self._settings.poll_s
        )

    # -- beside the rounds -------------------------------------------------------------------

    async def _watch(self) -> None:
        """Watch the fleet, and whether people want the run to end; collecting goes first."""
        await self._desk.clock.sleep(self._settings.poll_s)
        pause_s = min(self._fleet.look_every_s, STOP_LOOK_POLLS * self._settings.poll_s)
        while True:
            try:
                await self._fleet.look()
                await self._look_for_stop()
            except StoreUnavailableError as exc:
                self._desk.log.warning("could not look at the fleet: %s", exc)
            await self._desk.clock.sleep(pause_s)

    async def _look_for_stop(self) -> None:
        reason = None if self._stopping else await self._desk.run.mailbox.stop_reason()
        if reason is not None:
            self._stopping = True
            self._head_changed.set()
            self._desk.log.info(
                "a stop was requested (%s); waiting for the learners to leave", reason
            )
        if self._stopping and not self._fleet.live():
            # What they posted last is in a listing by now; once it is closed nothing more comes.
            self._idle_looks = self._idle_looks + 1 if all(c.idle for c in self._closers) else 0
            if self._idle_looks >= LOOKS_TO_END:
                self._ended.set()

    async def _tell(self) -> None:
        """Keep the head hint fresh."""
        while True:
            await self._until_stale()
            self._head_changed.clear()
            await self._persist(self._put_head)

    async def _until_stale(self) -> None:
        """Wait for news; where rounds ask by the head, an older one may have been put over it."""
        changed = self._head_changed.wait()
        if self._desk.run.algorithm.selection == Everyone():
            await changed
        else:
            await first_of(changed, self._desk.clock.sleep(self._settings.presence_s / 2))

    async def _put_head(self) -> None:
        async with self._telling:  # or an older head might land after a newer one
            await self._desk.run.mailbox.put_head(self._head())

    def _head(self) -> Head:
        return Head(
            run=self._desk.run.name,
            term=self._desk.term,
            closer=self._desk.name,
            versions=self._versions(),
            calling=tuple(sorted(self._calling)),
            asked=tuple((r, tuple(sorted(names))) for r, names in sorted(self._asked.items())),
            stopping=self._stopping,
            done=self._done,
            voucher=self._voucher,
        )

    async def _sweep(self) -> None:
        while True:
            fragment = await self._to_sweep.get()
            try:
                await self._sweepers[fragment].sweep(self._closers[fragment].present)
            except (StoreError, RecordError) as exc:  # a later sweep finds what this one leaves
                self._desk.log.warning("could not sweep: %s", exc, extra={"fragment": fragment})
