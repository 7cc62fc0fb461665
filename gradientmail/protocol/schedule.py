"""Which fragment is due at which inner step: exact, in integers.

With ``sync_every`` H = 10 and P = 3 fragments::

    inner step  3   6   10  13  16  20
    round       0   1   2   3   4   5
    fragment    0   1   2   0   1   2
    version     1   1   1   2   2   2

Source: Streaming DiLoCo (arXiv:2501.18512): fragments take turns, each every H steps.
"""

from dataclasses import dataclass

from gradientmail.errors import SettingsError


@dataclass(frozen=True, slots=True)
class RoundSchedule:
    """When each round of a run is due.

    Example:
        >>> schedule = RoundSchedule(sync_every=10, fragments=3)
        >>> [schedule.step_of(r) for r in range(6)]
        [3, 6, 10, 13, 16, 20]

    Attributes:
        sync_every: Inner steps between two rounds of the same fragment (H).
        fragments: Fragments that take turns (P), at most ``sync_every``.
        in_flight: Rounds a learner may have outstanding, at most ``fragments``.
        overlap_steps: Steps a learner trains past publishing before it waits for the commit;
            None: it never waits.

    Raises:
        SettingsError: a value is out of range; the message says what to change.
    """

    sync_every: int
    fragments: int
    in_flight: int = 1
    overlap_steps: int | None = None

    def __post_init__(self) -> None:
        if self.fragments < 1:
            raise SettingsError(f"fragments={self.fragments}: at least 1 is needed")
        if self.fragments > self.sync_every:
            raise SettingsError(
                f"fragments={self.fragments} is more than sync_every={self.sync_every}, so some "
                f"round would have no step of its own: set fragments to at most "
                f"{self.sync_every} or sync_every to at least {self.fragments}"
            )
        if not 1 <= self.in_flight <= self.fragments:
            raise SettingsError(
                f"in_flight={self.in_flight}: set 1 to {self.fragments} (fragments), because a "
                "learner never has two rounds of one fragment outstanding"
            )
        if self.overlap_steps is not None and self.overlap_steps < 0:
            raise SettingsError(
                f"overlap_steps={self.overlap_steps}: set 0 to wait for every commit at once, "
                "a number of steps, or leave it out to never wait"
            )

    def fragment_of(self, round_index: int) -> int:
        """Return the fragment that round ``round_index`` closes."""
        return round_index % self.fragments

    def step_of(self, round_index: int) -> int:
        """Return the inner step, counted from 1, at which round ``round_index`` is due."""
        cycle, turn = divmod(round_index, self.fragments)
        return cycle * self.sync_every + (turn + 1) * self.sync_every // self.fragments

    def gap(self, round_index: int) -> int:
        """Return the steps from the round before to this one; the gaps of a cycle sum to H."""
        return self.step_of(round_index) - self.step_of(round_index - 1)

    def version_after(self, round_index: int) -> int:
        """Return the version of its fragment that round ``round_index`` produces, from 1."""
        return round_index // self.fragments + 1

    def round_of(self, fragment: int, version: int) -> int:
        """Return the round that produces ``version``, at least 1, of ``fragment``."""
        return (version - 1) * self.fragments + fragment
