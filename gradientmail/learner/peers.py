"""Which other learners are live, as a learner sees it that has no closer to tell."""

from gradientmail.learner.desk import Desk
from gradientmail.protocol.liveness import Liveness
from gradientmail.records.presence import Presence


class Peers:
    """Watches ``learners/`` by listing; reads only a presence whose tag has changed."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._seen: dict[str, tuple[str, Presence]] = {}
        self._liveness = Liveness(presence_s=desk.run.manifest.settings.presence_s)

    async def look(self) -> None:
        """Look once.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        mailbox, run = self._desk.run.mailbox, self._desk.run.name
        for name, entry in (await mailbox.learners()).items():
            if name in self._seen and self._seen[name][0] == entry.tag:
                continue
            presence = await mailbox.presence(name)
            if presence is not None and (presence.run, presence.learner) == (run, name):
                self._seen[name] = entry.tag, presence
        tags = {name: tag for name, (tag, _) in self._seen.items()}
        left = (name for name, (_, presence) in self._seen.items() if presence.left)
        self._liveness = self._liveness.observed(self._desk.clock.now(), tags).left(*left)

    @property
    def known(self) -> frozenset[str]:
        """Everyone who ever showed, and ourselves."""
        return frozenset({*self._seen, self._desk.name})

    @property
    def live(self) -> frozenset[str]:
        """Those who are live now, and ourselves."""
        return self._liveness.live(self._desk.clock.now()) | {self._desk.name}
