"""The fleet as a closer sees it: who is live, and from which versions they may still read."""

import asyncio
import math

from gradientmail.clock import Clock
from gradientmail.errors import StoreError, StoreUnavailableError
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.protocol.liveness import Liveness
from gradientmail.records.presence import Presence

READ_AT_ONCE = 16
"""Presences read side by side."""

LOOKS_PER_PRESENCE = 8
"""More than two: a closer that looks more seldom counts as stalled and declares no one silent."""


class Fleet:
    """Watches ``learners/`` by listing; reads only a presence whose tag has changed."""

    def __init__(self, mailbox: Mailbox, clock: Clock, *, run: str, presence_s: float) -> None:
        self._log = get_logger("gradientmail.closer", run=run)
        self._mailbox = mailbox
        self._run = run
        self._clock = clock
        self._liveness = self._live_by = Liveness(presence_s=presence_s)
        self._live, self._live_until = frozenset[str](), -math.inf
        self._seen: dict[str, tuple[str, Presence]] = {}
        self.look_every_s = presence_s / LOOKS_PER_PRESENCE

    async def glance(self) -> None:
        """See who shows, and read nothing: everyone counts as live until ``look`` knows better."""
        entries = await self._mailbox.learners()
        tags = {name: entry.tag for name, entry in entries.items()}
        self._liveness = self._liveness.observed(self._clock.now(), tags)

    async def look(self) -> None:
        """Look once, and read what is new; who showed and says nothing readable is no learner.

        Where the store does not answer, nobody knows: until it does, or they fall silent, such
        learners are live.
        """
        entries = await self._mailbox.learners()
        changed = [
            (name, entry.tag)
            for name, entry in entries.items()
            if name not in self._seen or self._seen[name][0] != entry.tag
        ]
        seats = asyncio.Semaphore(READ_AT_ONCE)
        known = await asyncio.gather(*(self._read(name, tag, seats) for name, tag in changed))
        tags = {name: tag for name, (tag, _) in self._seen.items()}
        tags |= dict(one for one, sure in zip(changed, known, strict=True) if not sure)
        left = (name for name, (_, presence) in self._seen.items() if presence.left)
        liveness = self._liveness.observed(self._clock.now(), tags).restricted_to(tags)
        self._liveness = liveness.left(*left)

    async def _read(self, name: str, tag: str, seats: asyncio.Semaphore) -> bool:
        """Read one presence; return whether it is known now what it says, if anything."""
        async with seats:
            try:
                presence = await self._mailbox.presence(name)
            except StoreError as exc:
                self._log.warning("cannot read who is there: %s", exc, extra={"learner": name})
                return not isinstance(exc, StoreUnavailableError)
        if presence and (presence.run, presence.learner) == (self._run, name):
            self._seen[name] = tag, presence
        return True

    def live(self) -> frozenset[str]:
        """Return the learners that are live now; every verdict asks, so it is kept a while."""
        now, liveness = self._clock.now(), self._liveness
        if liveness is not self._live_by or now > self._live_until:
            self._live, self._live_by = liveness.live(now), liveness
            self._live_until = liveness.steady_until(now)
        return self._live

    def tags(self) -> dict[str, frozenset[str]]:
        """Return what each live learner says of itself."""
        seen = {name: frozenset(presence.tags) for name, (_, presence) in self._seen.items()}
        return {name: seen.get(name, frozenset()) for name in self.live()}

    def pinned(self, fragment: int) -> set[int]:
        """Return the versions of ``fragment`` that live learners are still aligned with."""
        live = self.live()
        return {
            presence.versions[fragment]
            for name, (_, presence) in self._seen.items()
            if name in live and fragment < len(presence.versions)
        }
