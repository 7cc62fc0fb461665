"""A learner's looks at the head and at commits: the protocol's polling, told what it posts."""

import math

from gradientmail.forecast.ground import Ground
from gradientmail.forecast.pace import Pace
from gradientmail.protocol.polling import Polling


class Looking:
    """What one learner expects, and when it looks."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        settings = ground.settings
        self._polling = Polling(
            poll_s=settings.poll_s,
            grace_s=settings.grace_s,
            cycle=ground.algorithm.schedule.fragments,
        )
        self._pace = Pace(ground.rng, takes_s=ground.latency_s)
        self._posted: dict[int, float] = {}
        self._looked_at = (0.0, 0.0)
        self._holding = False
        self._found_by_key, self._found_at = 0, -math.inf

    @property
    def looks(self) -> float:
        """How often it looked, but for looks that were the read of the commit itself."""
        return self._pace.looks - self._found_by_key

    def posted(self, fragment: int) -> None:
        """A commit of ``fragment`` is waited for from now on."""
        self.catch_up()
        self._posted.setdefault(fragment, self._ground.now)

    def hold(self, *, holding: bool) -> None:
        """Training waits for a commit, or goes on."""
        if holding != self._holding:
            self.catch_up()
            self._holding = holding

    def seen(self, fragment: int) -> None:
        """A new version of ``fragment`` has been seen: it answers what was posted, or is early."""
        posted_at = self._posted.pop(fragment, None)
        if posted_at is None:
            self._polling = self._polling.behind()
        else:
            now, posted = self._looked_at[0], {fragment: posted_at}
            due = self._polling.falls_due(now, head_at=now, posted=posted, eager=self._holding)
            if due and now != self._found_at:  # one look may find several
                self._found_by_key, self._found_at = self._found_by_key + 1, now
            self._polling = self._polling.answered(posted_at, *self._looked_at)

    def called(self, due_in_s: float) -> None:
        """A round that is due in so many seconds is called."""
        if due_in_s > (self._ground.settings.grace_s or 0.0) / 2:
            self._polling = self._polling.behind()

    def begin(self) -> None:
        """Look now, for the first time in this life: nothing is waited for."""
        self._posted.clear()
        self.looked()

    def looked(self) -> None:
        """Look now; the answer takes its time."""
        ends_at = self._ground.now + self._ground.latency_s
        self._looked_at = ends_at, ends_at - self._pace.gap_s
        self._pace.looked(ends_at)

    def next_look(self) -> float | None:
        """Return when the next look is; None when it was noted before."""
        return self._pace.next_look(self._ground.now, self._due, self._wait_s)

    def catch_up(self) -> None:
        """Count the looks up to now."""
        self._pace.catch_up(self._ground.now, self._due, self._wait_s)

    @property
    def _due(self) -> float:
        takes_s = self._polling.takes_s
        return min((at + takes_s for at in self._posted.values()), default=math.inf)

    def _wait_s(self, at: float, chance: float) -> float:
        posted = self._posted.values()
        return self._polling.wait_s(
            at, head_at=at, chance=chance, posted=posted, eager=self._holding
        )
