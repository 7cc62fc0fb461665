"""The fleet as a closer sees it: who is live, and from which versions they may still read."""

from gradientmail.clock import Clock
from gradientmail.mailbox import Mailbox
from gradientmail.protocol.liveness import Liveness
from gradientmail.records.presence import Presence

LOOKS_PER_PRESENCE = 8
"""More than two: a closer that looks more seldom counts as stalled and declares no one silent."""


class Fleet:
    """Watches ``learners/`` by listing; reads only a presence whose tag has changed."""

    def __init__(self, mailbox: Mailbox, clock: Clock, *, run: str, presence_s: float) -> None:
        self._mailbox = mailbox
        self._run = run
        self._clock = clock
        self._liveness = Liveness(presence_s=presence_s)
        self._seen: dict[str, tuple[str, Presence]] = {}
        self.look_every_s = presence_s / LOOKS_PER_PRESENCE

    async def look(self) -> None:
        """Look once."""
        entries = await self._mailbox.learners()
        for name, entry in entries.items():
            if name not in self._seen or self._seen[name][0] != entry.tag:
                presence = await self._mailbox.presence(name)
                if presence and (presence.run, presence.learner) == (self._run, name):
                    self._seen[name] = entry.tag, presence
        tags = {name: tag for name, (tag, _) in self._seen.items()}
        self._liveness = self._liveness.observed(self._clock.now(), tags)
        for name, (_, presence) in self._seen.items():
            if presence.left:
                self._liveness = self._liveness.left(name)

    def live(self) -> frozenset[str]:
        """Return the learners that are live now."""
        return self._liveness.live(self._clock.now())

    def pinned(self, fragment: int) -> set[int]:
        """Return the versions of ``fragment`` that live learners are still aligned with."""
        live = self.live()
        return {
            presence.versions[fragment]
            for name, (_, presence) in self._seen.items()
            if name in live and fragment < len(presence.versions)
        }
