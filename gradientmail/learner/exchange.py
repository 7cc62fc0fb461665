"""The exchange: a learner's side of the store, in the background of its training.

It runs in an event loop of its own thread; the training thread gives it drafts and takes arrivals,
and neither ever waits for the other. A commit that is due is read by its own key. All else to be
known is in ``head.json``, and what that says is then read from the commits themselves.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from torch import Tensor

from gradientmail.errors import StoreUnavailableError
from gradientmail.learner.desk import Desk
from gradientmail.learner.ending import Ending
from gradientmail.learner.outbox import Outbox
from gradientmail.learner.payloads import Payloads
from gradientmail.learner.posts import Arrival, Draft, Progress
from gradientmail.learner.presence import Beats
from gradientmail.protocol.polling import Polling
from gradientmail.records.commit import RoundRecord
from gradientmail.records.head import Head
from gradientmail.run import Version
from gradientmail.tasks import first_of, together

V = TypeVar("V", int, int | None)


class Exchange(Ending):
    """Create it inside a running loop, ``join``, then ``run``.

    Attributes:
        outbox: Takes drafts.
        calling: Rounds whose grace window is open, by the newest head.
        asked: Rounds that ask for this learner, by the newest head; None: all do.
        progress: Set by the training side; what presence says.
    """

    def __init__(self, desk: Desk, *, news: Callable[[], None]) -> None:
        super().__init__(desk, news)
        self.outbox = Outbox(desk, refused=self._refuse)
        self.calling: frozenset[int] = frozenset()
        everyone = desk.run.manifest.settings.selection == "all"
        self.asked: frozenset[int] | None = None if everyone else frozenset()
        self.progress = Progress(at=desk.clock.now(), versions=(0,) * len(desk.run.layouts))
        self._clock = desk.clock
        self._settings = desk.run.manifest.settings
        self._arrivals: dict[int, Arrival] = {}
        self._refusals: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._waiting: dict[int, float] = {}
        self._posted_at: dict[int, float] = {}
        self._looked_at = (desk.clock.now(),) * 2
        self._head_at = desk.clock.now()
        self._following: dict[int, asyncio.Task[None]] = {}
        self._loop, self._stirred = asyncio.get_running_loop(), asyncio.Event()
        self._payloads = Payloads(desk)
        self._beats = Beats(desk, lambda: self.progress)
        self._polling = Polling(
            poll_s=self._settings.poll_s,
            grace_s=self._settings.grace_s,
            cycle=len(desk.run.layouts),
        )

    # -- for the training side ---------------------------------------------------------------

    def post(self, draft: Draft) -> None:
        """Send a contribution on its way."""
        self.expect(draft.fragment)
        self.outbox.post(draft)

    def expect(self, fragment: int) -> None:
        """A commit of ``fragment`` is due: look for it even if no head tells of it."""
        self._waiting[fragment] = self._clock.now()
        self._posted_at.setdefault(fragment, self._waiting[fragment])
        self._loop.call_soon_threadsafe(self._stirred.set)

    def give_back(self, fragment: int, key: str) -> None:
        """Add an unused contribution to the residual."""
        self.outbox.give_back(fragment, key)

    def owe(self, fragment: int, vector: Tensor) -> None:
        """Send a vector with the next contribution."""
        self.outbox.owe(fragment, vector)

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
            self._posted_at.pop(arrival.version.fragment, None)
        return arrivals, refusals

    def _refuse(self, key: str, reason: str) -> None:
        with self._lock:
            self._refusals.append((key, reason))
        self._news()

    # -- joining -----------------------------------------------------------------------------

    async def join(self, held: Mapping[int, Arrival]) -> None:
        """Bring every fragment to its newest version, from ``held`` where it is given."""
        self._held = dict(held)
        find = self._run.told_of_all if held else self._run.vouched_of_all
        await asyncio.gather(*(self._adopt(version) for version in await find()))
        versions = ", ".join(str(self._held[p].version.number) for p in range(len(self._held)))
        self._desk.log.info("joined at versions %s", versions)
        self._look_for_last_round()

    # -- running -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Post, watch and beat until cancelled."""
        await together(self.outbox.run(), self._watch(), self._beats.run(self._look_for_stop))

    async def leave(self) -> None:
        """Say that we are gone, so that no round waits for us."""
        await self._beats.put(left=True)

    async def _watch(self) -> None:
        try:
            while True:
                await self._until_next_look()
                await self._if_in_reach(self._look())
        finally:
            for task in self._following.values():
                task.cancel()

    async def _until_next_look(self) -> None:
        """Wait for the predicted instant, which changes with what is posted and what arrives."""
        looked_at, chance = self._clock.now(), self._desk.rng.random()
        while True:
            wait_s = self._polling.wait_s(
                looked_at,
                head_at=self._head_at,
                chance=chance,
                posted=self._posted_at.copy().values(),
                eager=self._eager,
            )
            left_s = looked_at + wait_s - self._clock.now()
            if left_s <= 0:
                self._looked_at = self._clock.now(), looked_at
                return
            self._stirred.clear()
            await first_of(
                self._clock.sleep(min(left_s, self._settings.poll_s)), self._stirred.wait()
            )

    async def _if_in_reach(self, act: Coroutine[Any, Any, None]) -> None:
        try:
            await act
        except StoreUnavailableError as exc:
            self._desk.log.warning("the store is out of reach, trying again: %s", exc)

    @property
    def _eager(self) -> bool:
        """Whether training waits, or may be asked for more at any time."""
        return self.progress.holding or self.asked is not None

    async def _look(self) -> None:
        """Read the commits that fall due, or else the head, which tells of everything."""
        now, posted = self._looked_at[0], self._posted_at.copy()
        due = self._polling.falls_due(now, head_at=self._head_at, posted=posted, eager=self._eager)
        if due:
            self._follow_up({p: self._held[p].version.number + 1 for p in due}, self._take_up)
        else:
            self._head_at = now
            await self._look_at_head()

    async def _look_at_head(self) -> None:
        head = await self._run.mailbox.head()
        ahead: dict[int, int | None] = dict.fromkeys(self._overdue())
        if head is not None and head.run == self._run.name:
            await self._follow(head)
            numbered = enumerate(head.versions[: len(self._held)])
            ahead |= {p: v for p, v in numbered if v > self._held[p].version.number}
        self._follow_up(ahead, self._catch_up)

    def _follow_up(
        self, ahead: Mapping[int, V], act: Callable[[int, V], Coroutine[Any, Any, None]]
    ) -> None:
        """Look after each fragment in a task of its own: none waits for another's payload."""
        for fragment in [p for p, task in self._following.items() if task.done()]:
            self._following.pop(fragment).result()
        for fragment, told in ahead.items():
            if fragment not in self._following:
                catching_up = self._if_in_reach(act(fragment, told))
                self._following[fragment] = asyncio.create_task(catching_up)

    async def _follow(self, head: Head) -> None:
        """Take from the head what is only a hint; whether the run ends is read from its source."""
        calling = frozenset(head.calling)
        if calling != self.calling:
            self.calling = calling
            if self._is_late_for(calling):
                self._polling = self._polling.behind()
            self._news()
        asked = frozenset(r for r, names in head.asked if self._desk.name in names)
        if self.asked is not None and asked != self.asked:
            self.asked = asked
            self._news()
        self.finished = self.finished or (self.ending and head.done)
        if head.stopping and not self.ending:
            await self._look_for_stop()

    def _is_late_for(self, calling: frozenset[int]) -> bool:
        """Whether a round is called for which ours would not be due within the grace window."""
        fragment_of = self._run.algorithm.schedule.fragment_of
        unanswered = any(fragment_of(round_index) not in self._waiting for round_index in calling)
        window_s = self._settings.grace_s or 0.0
        return unanswered and self.progress.next_post_at > self._clock.now() + window_s / 2

    def _overdue(self) -> list[int]:
        """Return fragments whose commit should be there: the head may be stale."""
        now, poll_s = self._clock.now(), self._settings.poll_s
        timeout_s = max(one.version.estimates.timeout(poll_s) for one in self._held.values())
        return [p for p, since in list(self._waiting.items()) if now - since > timeout_s]

    async def _take_up(self, fragment: int, following: int) -> None:
        """Take the version that is due, if it is there."""
        if found := await self._run.version(fragment, following):
            await self._adopt(found)

    async def _catch_up(self, fragment: int, told: int | None) -> None:
        """Take the version a head told of; where it told none or wrong, look what follows ours."""
        if told is not None and (found := await self._run.version(fragment, told)):
            await self._adopt(found)
            return
        following = self._held[fragment].version.number + 1
        if await self._run.version(fragment, following) is not None:
            await self._adopt(await self._run.newest(fragment, following))
        elif fragment in self._waiting:
            self.expect(fragment)  # not yet: ask again in a while

    async def _adopt(self, newest: Version) -> None:
        """Fetch a version and hand it to the training side."""
        held = self._held.get(newest.fragment)
        if held is not None and newest.number <= held.version.number:
            return
        self._learn_from(newest)
        newest, params = await self._payloads.newest(newest, held)
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

    def _learn_from(self, version: Version) -> None:
        """Learn from a commit when to look for the next one."""
        posted_at = self._posted_at.pop(version.fragment, None)
        if posted_at is not None:
            self._polling = self._polling.answered(posted_at, *self._looked_at)
        elif version.fragment in self._held:
            self._polling = self._polling.behind()
