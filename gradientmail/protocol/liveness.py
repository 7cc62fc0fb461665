"""Which learners are live, by what the closer saw on its own clock.

Each learner keeps rewriting its presence, and a listing shows a tag that changes with it::

    unknown -- first sight -----------------------------------------> live
    live    -- the same tag for presence_s -------------------------> silent
    live    -- its presence says that it left ----------------------> gone
    silent, gone -- another tag ------------------------------------> live

No learner's clock is read. A closer that did not look for half of presence_s was stalled itself
and proves nobody's silence: who was live then is observed anew.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Sighting:
    """A learner's newest tag, the instant its observation began, and whether it has left."""

    tag: str
    since: float
    left: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Liveness:
    """Every learner that ever showed.

    Attributes:
        presence_s: How long a silent learner counts as live.
        looked_at: Instant of the newest look, seconds on the closer's clock.
        sightings: What is known of each learner.
    """

    presence_s: float
    looked_at: float = 0.0
    sightings: Mapping[str, Sighting] = field(default_factory=dict)

    def observed(self, now: float, tags: Mapping[str, str]) -> "Liveness":
        """Fold in a listing of (learner, tag) seen at ``now``; equal arguments, equal results.

        A learner that a stale listing lacks stays as it was.
        """
        sightings = dict(self.sightings)
        if self._stalled(now):
            sightings |= {name: replace(sightings[name], since=now) for name in self.live(now)}
        for name, tag in tags.items():
            if name not in sightings or sightings[name].tag != tag:
                sightings[name] = Sighting(tag, since=now)
        return replace(self, looked_at=now, sightings=sightings)

    def left(self, *learners: str) -> "Liveness":
        """Take note that the presences ``learners`` were last seen with say that they left."""
        gone = {name: replace(self.sightings[name], left=True) for name in learners}
        return replace(self, sightings={**self.sightings, **gone})

    def restricted_to(self, names: Collection[str]) -> "Liveness":
        """Forget everyone else: what shows under their names is no learner's presence."""
        known = {name: seen for name, seen in self.sightings.items() if name in names}
        return replace(self, sightings=known)

    def live(self, now: float) -> frozenset[str]:
        """Return who is live at ``now``; silence while the closer was stalled does not count."""
        instant = self.looked_at if self._stalled(now) else now
        return frozenset(
            name
            for name, sighting in self.sightings.items()
            if not sighting.left and instant - sighting.since <= self.presence_s
        )

    def steady_until(self, now: float) -> float:
        """Return how long ``live`` stays as it is at ``now``, if nothing is observed."""
        if self._stalled(now):
            return math.inf
        live = self.live(now)
        ends = [self.sightings[name].since + self.presence_s for name in live]
        return min([self.looked_at + self.presence_s / 2, *ends])

    def _stalled(self, now: float) -> bool:
        return now - self.looked_at > self.presence_s / 2
