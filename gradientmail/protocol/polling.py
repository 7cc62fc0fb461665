"""When to look again: when something is due, and not ever again in between.

A learner learns from its own contributions how long after posting one the commit can be seen, and
reads the commit then, by its own key. Found at once, it looks a little sooner the next time; not
found, as late as it turned out to be. So most commits take one request. The head, which tells of
every fragment, of calls and of the end, is read for what is late, and now and then::

    ours is posted     -- as long after as the last ones took --> read the commit
    it is not there    -- 1/4, 1/2, 1 poll after ---------------> read the commit
    late by more       -- once a poll --------------------------> read the head
    late for long      -- ever more seldom, to once in 8 polls -> read the head
    whatever is due    -- once in 8 polls ----------------------> read the head
    called too late, or left out of a round
                       -- twice in a grace window, for some cycles -> read the head

The chance in it parts readers that began together.

A closer comes half-way nearer to the expected quorum with each look, for some learners are faster
than others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gradientmail.records.estimates import Estimates

LEAST_POLLS: Final = 0.125
SLACK_POLLS: Final = LEAST_POLLS / 2
"""A look so soon before an instant counts as one at it: clocks are not exact."""

AGAIN_POLLS: Final = 0.25
JITTER: Final = 0.25
SOONER: Final = 0.02
QUICKENING: Final = 1.5
"""After a look that found its commit at once, the next one is sooner by this share of a poll, and
after each further one in a row by so many times more."""

PATIENCE: Final = 8.0
"""What is late by x more than its timeout is looked for every x / 8."""

QUIET_POLLS: Final = 8.0
CLOSER_POLLS: Final = 4.0
"""The most polls between two looks of a learner, and of a closer with a live learner."""

HURRIED_CYCLES: Final = 2


def late_wait_s(late_s: float, timeout_s: float, poll_s: float) -> float:
    """Return the seconds until the next look for what has been due for ``late_s``."""
    patience_s = max(0.0, late_s - timeout_s) / PATIENCE
    return min(max(late_s, LEAST_POLLS * poll_s), poll_s) + patience_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Polling:
    """A learner's looks at the head, and at commits.

    Attributes:
        poll_s: The run's: seconds between two looks for what is due.
        grace_s: The run's grace window; None: nobody is called.
        cycle: Rounds of one cycle.
        takes_s: How long after posting the commit is looked for.
        hurried: For so many rounds it listens for calls.
        sooner: Share of a poll by which the next look may be sooner.
        settled: A look came too early, once: until then it halves the time, since the first
            rounds of a fleet that comes together take long.
    """

    poll_s: float
    grace_s: float | None
    cycle: int
    takes_s: float = 0.0
    hurried: int = 0
    sooner: float = SOONER
    settled: bool = False

    def answered(self, posted_at: float, looked_at: float, before: float) -> "Polling":
        """Take note of a commit that speaks of a contribution of ours.

        Args:
            posted_at: When that was posted.
            looked_at: When the look was that showed the commit.
            before: When the look before was.
        """
        takes_s, hurried = looked_at - posted_at, max(0, self.hurried - 1)
        if self._is_due(posted_at, before):
            begun = self.takes_s > 0
            return replace(self, takes_s=takes_s, hurried=hurried, sooner=SOONER, settled=begun)
        takes_s = min(takes_s, self.takes_s)
        if self.settled:
            takes_s -= self.sooner * min(takes_s, self.poll_s)
        else:
            takes_s /= 2
        return replace(
            self, takes_s=takes_s, hurried=hurried, sooner=min(1.0, self.sooner * QUICKENING)
        )

    def behind(self) -> "Polling":
        """Take note that a round was called, or closed, before ours could be posted."""
        return replace(self, hurried=HURRIED_CYCLES * self.cycle)

    def wait_s(
        self, at: float, *, head_at: float, chance: float, posted: Iterable[float], eager: bool
    ) -> float:
        """Return how long after the last look the next one is.

        Args:
            at: Instant of the last look, seconds on the reader's clock.
            head_at: Instant of the last look that read the head.
            chance: Drawn from [0, 1) for each look.
            posted: When each contribution was posted that waits for its commit.
            eager: Training waits, or may be asked for more at any time.
        """
        head_s = head_at + self._head_every_s(eager=eager) - at
        waits = [self._wait_s(posted_at, at, chance) for posted_at in posted]
        return max(LEAST_POLLS * self.poll_s, min([*waits, head_s]))

    def falls_due(
        self, now: float, *, head_at: float, posted: Mapping[int, float], eager: bool
    ) -> frozenset[int]:
        """Return the fragments whose commits a look reads; none: it reads the head.

        Args:
            now: Instant of the look.
            head_at: Instant of the last look that read the head.
            posted: Of each fragment, when a contribution was posted that waits for its commit.
            eager: As for ``wait_s``.
        """
        due = {fragment: at for fragment, at in posted.items() if self._is_due(at, now)}
        late = any(self._is_due(at, now - self.poll_s) for at in due.values())
        if late or self._reached(now, head_at + self._head_every_s(eager=eager)):
            return frozenset()
        return frozenset(due)

    def _is_due(self, posted_at: float, now: float) -> bool:
        """Whether the commit that takes up what was posted then should be there."""
        return self._reached(now, posted_at + self.takes_s)

    def _reached(self, now: float, instant: float) -> bool:
        return now >= instant - SLACK_POLLS * self.poll_s

    def _head_every_s(self, *, eager: bool) -> float:
        """Return how long after the head was read it is read again, whatever is due."""
        quiet_s = QUIET_POLLS * self.poll_s
        if eager:
            return self.poll_s
        if self.hurried and self.grace_s:
            return min(quiet_s, max(self.poll_s, self.grace_s / 2))
        return quiet_s

    def _wait_s(self, posted_at: float, now: float, chance: float) -> float:
        late_s = now - (posted_at + self.takes_s)
        if late_s < 0:
            return -late_s
        timeout_s = Estimates(sync_s=self.takes_s).timeout(self.poll_s)
        again_s = max(late_s, AGAIN_POLLS * self.poll_s)
        return late_wait_s(again_s, timeout_s, self.poll_s) * (1 + JITTER * chance)


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """A closer's looks at the mail of one round.

    Attributes:
        poll_s: The run's.
        estimates: The fragment's.
        began: Instant of the first look.
        opened: Instant at which someone was there to be waited for; None before.
        heard_at: When the newest mail was found; None before the first.
    """

    poll_s: float
    estimates: Estimates
    began: float
    opened: float | None = None
    heard_at: float | None = None

    def wait_s(self, now: float) -> float:
        """Return how long after the last look, at ``now``, the next one is."""
        timeout_s = self.estimates.timeout(self.poll_s)
        due = self.began if self.opened is None else self.opened + (self.estimates.quorum_s or 0.0)
        rest_s = due - now
        if self.heard_at is not None:
            wait_s = late_wait_s(now - self.heard_at, timeout_s, self.poll_s)
        elif rest_s > 0:
            wait_s = max(LEAST_POLLS * self.poll_s, rest_s / 2)
        else:
            wait_s = late_wait_s(-rest_s, timeout_s, self.poll_s)
        return min(wait_s, CLOSER_POLLS * self.poll_s)
