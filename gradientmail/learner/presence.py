"""How a learner is seen: its presence, rewritten for as long as it trains."""

import asyncio
from collections.abc import Awaitable, Callable

from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.learner.desk import Desk
from gradientmail.learner.posts import Progress
from gradientmail.records.presence import Presence

BEATS_PER_PRESENCE = 4


class Beats:
    """Signs of life of one learner. No contribution and no commit waits for them.

    Args:
        progress: Returns what the presence is to say.
    """

    def __init__(self, desk: Desk, progress: Callable[[], Progress]) -> None:
        self._desk, self._progress = desk, progress
        self._presence_s = desk.run.manifest.settings.presence_s
        self._count = 0
        self._being_seen = asyncio.Lock()
        self._others_beat: tuple[str, int] | None = None
        self._told_of_twins = False

    async def run(self, beside: Callable[[], Awaitable[None]]) -> None:
        """Be seen for as long as training goes on; a loop that hangs falls silent.

        Args:
            beside: Called with each beat: what is to be looked for as often.
        """
        while True:
            progress = self._progress()
            silent_s = self._desk.clock.now() - progress.at
            if progress.holding or silent_s < self._presence_s:
                try:
                    await self._look_for_twins()
                    await beside()
                    await self.put(left=False)
                except (StoreUnavailableError, StoreFullError) as exc:
                    self._desk.log.warning("could not be seen: %s", exc)
            await self._desk.clock.sleep(self._presence_s / BEATS_PER_PRESENCE)

    async def _look_for_twins(self) -> None:
        """Two processes under one name do no harm, but only one of them counts: say so once."""
        if self._count == 0 or self._told_of_twins:
            return
        there = await self._desk.run.mailbox.presence(self._desk.name)
        if there is None or there.incarnation == self._desk.incarnation or there.left:
            return
        seen = there.incarnation, there.count
        if self._others_beat is not None and seen != self._others_beat:
            self._told_of_twins = True
            self._desk.log.warning(
                "another process trains under our name: give each its own --name"
            )
        self._others_beat = seen

    async def put(self, *, left: bool) -> None:
        """Write our presence; ``left``: for the last time."""
        self._count += 1
        progress, meter = self._progress(), self._desk.meter
        presence = Presence(
            run=self._desk.run.name,
            learner=self._desk.name,
            incarnation=self._desk.incarnation,
            count=self._count,
            versions=progress.versions,
            steps=progress.steps,
            tokens=progress.tokens,
            samples=progress.samples,
            step_s=progress.step_s,
            loss=progress.loss,
            posted=progress.posted,
            applied=progress.applied,
            dropped=progress.dropped,
            rejected=progress.rejected,
            bytes_up=meter.up_bytes,
            bytes_down=meter.down_bytes,
            requests=meter.requests,
            waited_s=progress.waited_s,
            divergence=progress.divergence,
            device=str(self._desk.device),
            seen_at=self._desk.clock.wall(),
            tags=self._desk.tags,
            left=left,
        )
        await asyncio.shield(self._write(presence))

    async def _write(self, presence: Presence) -> None:
        """Write in the order of calls: what was cancelled may go on, but lands before the next."""
        async with self._being_seen:
            await self._desk.run.mailbox.put_presence(presence)
