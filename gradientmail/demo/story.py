"""What the demo saw, as plain values; screen, plots and summary are views of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from gradientmail.records.commit import RoundRecord
from gradientmail.records.presence import Presence

CLOSER = "closer"


@dataclass(frozen=True, slots=True)
class Point:
    """A held-out loss, in nats per byte, ``at_s`` seconds after training began."""

    at_s: float
    loss: float


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL to the process ``name``, at POSIX time ``at``."""

    name: str
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What went between a learner and the store."""

    up_bytes: int
    down_bytes: int
    requests: int


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """How far the fastest learner is that trains alone.

    Attributes:
        loss: Its own, of the last batch.
        params: The file with its parameters, if it has just written one.
    """

    at_s: float = 0.0
    steps: int = 0
    loss: float | None = None
    params: str | None = None


@dataclass(kw_only=True)
class Story:
    """Filled in as the demo goes on.

    Attributes:
        shares: Speed of each learner, of which the fastest has 1.0; the first is the fastest.
        seconds: How long the run is to train.
        began_at: POSIX time at which the first learner had joined: second 0 of the run.
        commits: In the order in which they closed.
        presences: Of each learner, the newest of each incarnation, the present one last.
        events: Lines for people, each with its second.
        together: Held-out losses of the run.
        alone: Held-out losses of the fastest learner alone.
    """

    shares: Mapping[str, float]
    seconds: float
    began_at: float | None = None
    commits: list[RoundRecord] = field(default_factory=list)
    presences: dict[str, dict[str, Presence]] = field(default_factory=dict)
    kills: list[Kill] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    together: list[Point] = field(default_factory=list)
    alone: list[Point] = field(default_factory=list)
    progress_alone: Alone = field(default_factory=Alone)

    @property
    def fastest(self) -> str:
        """The learner that also trains alone."""
        return next(iter(self.shares))

    @property
    def trained_s(self) -> float:
        """Seconds from the first learner's joining to the last commit."""
        return self.at_s(self.commits[-1].closed_at) if self.commits else 0.0

    def at_s(self, posix: float) -> float:
        """Return the second of the run at a POSIX time; 0 before it began."""
        return 0.0 if self.began_at is None else posix - self.began_at

    def saw(self, presence: Presence) -> None:
        """Take in what a learner says of itself."""
        if self.began_at is None:
            self.began_at = presence.seen_at
        self.presences.setdefault(presence.learner, {})[presence.incarnation] = presence

    def presence(self, learner: str) -> Presence | None:
        """Return the last word of ``learner``."""
        said = self.presences.get(learner)
        return list(said.values())[-1] if said else None

    def traffic(self, learner: str) -> Traffic:
        """Return what all incarnations of ``learner`` counted, each as far as it last told."""
        said = self.presences.get(learner, {}).values()
        return Traffic(
            up_bytes=sum(one.bytes_up for one in said),
            down_bytes=sum(one.bytes_down for one in said),
            requests=sum(one.requests for one in said),
        )

    def back_at(self, kill: Kill) -> float | None:
        """Return when the killed process had its first new effect on the run; None: not yet.

        Of a learner that is the first commit with a contribution of a new incarnation, of the
        closer the first commit under a new term.
        """
        before = _marks([c for c in self.commits if c.closed_at <= kill.at], kill.name)
        for commit in self.commits:
            if commit.closed_at > kill.at and _marks([commit], kill.name) - before:
                return commit.closed_at
        return None


def commit_shares(commit: RoundRecord) -> dict[str, float]:
    """Return what part of the merged pseudo-gradient each learner was."""
    total = sum(one.weight for one in commit.participants)
    shares: dict[str, float] = {}
    for one in commit.participants:
        shares[one.learner] = shares.get(one.learner, 0.0) + one.weight / total
    return shares


def _marks(commits: Sequence[RoundRecord], name: str) -> set[str]:
    """Return by what ``commits`` show which process under ``name`` had a part in them."""
    if name == CLOSER:
        return {str(commit.term) for commit in commits}
    participants = (one for commit in commits for one in commit.participants)
    return {one.incarnation for one in participants if one.learner == name}
