"""Who is live, as the closer sees it: the protocol's liveness, fed with the tags of presences."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gradientmail.closer.fleet import LOOKS_PER_PRESENCE
from gradientmail.closer.term import STOP_LOOK_POLLS
from gradientmail.forecast.ground import Ground
from gradientmail.forecast.learner import Learner
from gradientmail.forecast.local import State
from gradientmail.protocol.liveness import Liveness

QUIET: Final = 0.45
"""Of presence_s between two looks while nobody comes or goes: less than half, or Liveness takes
the closer for one that was stalled. The looks between find every learner as live as before."""


class Watch:
    """Looks at the fleet.

    Attributes:
        live: Who was live at the newest look.
        looks: How many looks there were.
    """

    def __init__(
        self, ground: Ground, learners: Iterable[Learner], *, changed: Callable[[], None]
    ) -> None:
        self._ground, self._changed = ground, changed
        settings = ground.settings
        self.look_every_s = min(
            settings.presence_s / LOOKS_PER_PRESENCE, STOP_LOOK_POLLS * settings.poll_s
        )
        self._learners = {learner.name: learner for learner in learners}
        self._liveness = Liveness(presence_s=settings.presence_s)
        self._restless_until = 0.0
        self._left: set[str] = set()
        self._turn = 0
        self.live: frozenset[str] = frozenset()
        self.looks = 0.0

    def start(self) -> None:
        """Begin to look, now."""
        self._look(self._turn)

    def stir(self) -> None:
        """Somebody came, went or fell silent: look at the usual pace until that has shown."""
        settings = self._ground.settings
        self._restless_until = self._ground.now + settings.presence_s + 2 * self.look_every_s
        self._turn += 1
        self._ground.agenda.at(self._ground.now + self.look_every_s, self._look, self._turn)

    def _look(self, turn: int) -> None:
        if turn != self._turn:
            return
        now = self._ground.now
        self._liveness = self._liveness.observed(now, self._tags(now))
        for learner in self._learners.values():
            if learner.state is State.GONE and learner.identity not in self._left:
                self._left.add(learner.identity)
                if learner.identity in self._liveness.sightings:
                    self._liveness = self._liveness.left(learner.identity)
        live = self._liveness.live(now)
        if live != self.live:
            self.live = live
            self._changed()
        restless = now < self._restless_until
        usual_s, quiet_s = self.look_every_s, QUIET * self._ground.settings.presence_s
        wait_s = usual_s if restless else max(usual_s, quiet_s)
        self.looks += wait_s / usual_s
        self._ground.agenda.at(now + wait_s, self._look, turn)

    def _tags(self, now: float) -> Mapping[str, str]:
        """Return what a listing shows: also the last words of those who fell silent."""
        return {
            learner.identity: learner.tag(now)
            for learner in self._learners.values()
            if learner.present or learner.identity in self._liveness.sightings
        }

    def pinned(self, fragment: int) -> set[int]:
        """Return the versions of ``fragment`` that live learners are aligned with."""
        return {
            learner.publishing.versions[fragment]
            for learner in self._learners.values()
            if learner.present
        }
