"""What many worlds came to, in one line."""

from collections import Counter
from dataclasses import dataclass, field

from gradientmail.simulation.checking import Verdict

CONFIDENCE = 3.0
"""With no failure in N worlds, the rate of failures is below 3/N at 95 %."""


@dataclass
class Report:
    """A sum over verdicts.

    Attributes:
        seen: In how many worlds each thing was seen.
    """

    worlds: int = 0
    wrong: int = 0
    operations: int = 0
    commits: int = 0
    virtual_s: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Take a verdict in."""
        self.worlds += 1
        self.wrong += bool(verdict.wrong)
        self.operations += verdict.operations
        self.commits += verdict.commits
        self.virtual_s += verdict.virtual_s
        self.seen.update(set(verdict.seen))

    def summary(self, what: str) -> str:
        """Return the sum as a sentence; ``what`` is what the worlds differ by."""
        bound = f"; failure rate below {CONFIDENCE / self.worlds:.2g} (3/N)"
        return (
            f"{self.worlds} {what}, {self.operations} operations, {self.commits} commits, "
            f"{self.virtual_s / 3600:.1f} simulated hours: {self.wrong} wrong"
            + (bound if self.worlds and not self.wrong else "")
        )
