"""What every process of a forecast shares: time, sizes, the commits there are, the head."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from gradientmail.algorithm import Algorithm
from gradientmail.config import RunSettings
from gradientmail.forecast.agenda import Agenda
from gradientmail.forecast.ledger import Stored
from gradientmail.forecast.sizes import DIGEST, NAME, NONCE, Sizes
from gradientmail.forecast.trace import Trace
from gradientmail.records import keys
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.records.estimates import Estimates
from gradientmail.records.manifest import PayloadRef

_REF: Final = PayloadRef(key=keys.payload(0, 0, NONCE, "params"), size_bytes=1, digest=DIGEST)
_RECORD: Final = RoundRecord(
    run=NAME,
    fragment=0,
    version=1,
    parent=DIGEST,
    params=_REF,
    closer="closer",
    term=1,
    nonce=NONCE,
)
_PARTICIPANT: Final = Participant(
    learner="learner",
    incarnation=NONCE,
    nonce=NONCE,
    base=0,
    steps=1,
    tokens=1,
    weight=1.0,
    norm=1.0,
    clip=1.0,
    key=_REF.key,
    digest=DIGEST,
)


@dataclass(frozen=True, slots=True)
class Commit:
    """A version of a fragment.

    Attributes:
        used: (learner, base) of every contribution in it.
        applied: Highest base used of each learner, over the whole chain.
        size_bytes: Of the record.
        empty: It has its parent's payloads.
    """

    version: int
    at: float
    used: frozenset[tuple[str, int]]
    applied: Mapping[str, int]
    size_bytes: int
    estimates: Estimates
    empty: bool

    def as_read_by(self, learner: str, base: int) -> RoundRecord:
        """Return the record, of whose participants only this one's is of interest to it."""
        mine = (learner, base) in self.used
        one = (replace(_PARTICIPANT, learner=learner, base=base),) if mine else ()
        applied = {learner: self.applied[learner]} if learner in self.applied else {}
        return replace(_RECORD, version=self.version, participants=one, applied=applied)


@dataclass
class Ground:
    """Shared by reference.

    Attributes:
        latency_s: Of one operation of the store.
        last_round: How many rounds to look ahead.
        rounds: Closed so far, of all fragments together.
        commits: Of each fragment, every commit in order.
        versions: Newest version of each fragment, by the head.
        calling: Rounds whose grace window is open, by the head.
        stored: What lies in the store.
    """

    agenda: Agenda
    settings: RunSettings
    algorithm: Algorithm
    sizes: Sizes
    latency_s: float
    rng: random.Random
    trace: Trace
    last_round: int
    rounds: int = 0
    commits: list[list[Commit]] = field(default_factory=list)
    versions: tuple[int, ...] = ()
    calling: frozenset[int] = frozenset()
    stored: Stored = field(default_factory=Stored)

    def __post_init__(self) -> None:
        fragments = self.algorithm.schedule.fragments
        self.commits = [[] for _ in range(fragments)]
        self.versions = (0,) * fragments

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.agenda.now

    def committed(self, fragment: int, commit: Commit) -> None:
        """Take note of a version; the last round of all ends the forecast."""
        self.commits[fragment].append(commit)
        self.rounds += 1
        if self.rounds >= self.last_round:
            self.agenda.stop()

    def commit(self, fragment: int, version: int) -> Commit:
        """Return a commit, ``version`` at least 1."""
        return self.commits[fragment][version - 1]

    def estimates(self, fragment: int, version: int) -> Estimates:
        """Return what the record of a version says of how long things take."""
        return self.commit(fragment, version).estimates if version else Estimates()

    def commit_bytes(self, fragment: int, version: int) -> int:
        """Return the size of the record of a version; version 0 is in the manifest."""
        return self.commit(fragment, version).size_bytes if version else 0
