"""What each record of a fragment's chain must say, given those before it; from records alone."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gradientmail.algorithms.merge import clip_factors
from gradientmail.algorithms.weights import Work
from gradientmail.records import keys
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.records.keys import MailKey
from gradientmail.run import Run, Version


@dataclass
class Chain:
    """A fragment's versions up to ``newest``, of which only what the next one needs is kept.

    Attributes:
        anchors: Digests of the versions that a contribution to the next one may be against.
    """

    run: Run
    newest: Version
    roles: frozenset[str]
    anchors: dict[int, str] = field(init=False)
    _nonces: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.anchors = {self.newest.number: self.newest.digest}

    def extend(self, record: RoundRecord, following: Version) -> list[str]:
        """Take in the next version; return what its record should not say, a line each."""
        faults = [
            *self._place(record),
            *(self._empty(record) if record.empty else self._filled(record)),
            *self._participants(record),
            *self._applied(record),
        ]
        self._nonces.add(record.nonce)
        self.newest = following
        self.anchors[following.number] = following.digest
        oldest = following.number - self.run.manifest.settings.max_staleness
        self.anchors = {n: digest for n, digest in self.anchors.items() if n >= oldest}
        return faults

    def _place(self, record: RoundRecord) -> Iterator[str]:
        if record.parent != self.newest.digest:
            yield f"its parent is {record.parent}, version {self.newest.number} has another digest"
        if record.nonce in self._nonces:
            yield "its nonce is that of an earlier version"

    # -- content -----------------------------------------------------------------------------

    def _empty(self, record: RoundRecord) -> Iterator[str]:
        before = (self.newest.params, self.newest.outer, None)
        if (record.params, record.outer, record.update) != before:
            yield "it is empty, but its payloads are not those of the version before"
        if record.participants or record.norm or record.cosine is not None:
            yield "it is empty, but has participants"
        if record.outer_steps != self.newest.outer_steps:
            yield "it is empty, but counts an outer step"

    def _filled(self, record: RoundRecord) -> Iterator[str]:
        if not record.participants:
            yield "it has no participants, but is not empty"
        if record.outer_steps != self.newest.outer_steps + 1:
            yield f"it counts {record.outer_steps} outer steps after {self.newest.outer_steps}"
        payloads = {"params": record.params, "outer": record.outer, "update": record.update}
        held = {role: ref for role, ref in payloads.items() if ref is not None}
        if held.keys() != self.roles:
            yield f"it has {sorted(held)}, the run's settings call for {sorted(self.roles)}"
        place = (record.fragment, record.version)
        for role, ref in held.items():
            if keys.parse_payload(ref.key) != place:
                yield f"its {role} lies under another version: {ref.key}"

    # -- participants ------------------------------------------------------------------------

    def _participants(self, record: RoundRecord) -> Iterator[str]:
        rule = self.run.algorithms[record.fragment].aggregator
        for used in record.participants:
            yield from self._participant(record, used)
        clips = clip_factors([used.norm for used in record.participants], rule.clip_ratio)
        if [used.clip for used in record.participants] != list(clips):
            yield "its clip factors do not follow from its norms"

    def _participant(self, record: RoundRecord, used: Participant) -> Iterator[str]:
        settings, who = self.run.manifest.settings, f"{used.learner}'s contribution"
        place = MailKey(record.fragment, used.base, used.learner, used.nonce)
        if keys.parse_mail(used.key) != place:
            yield f"{who} lies under another's key: {used.key}"
        if not 0 <= self.newest.number - used.base <= settings.max_staleness:
            yield f"{who} against version {used.base} is too old or too new"
        staleness = self.newest.number - used.base
        work = Work(
            tokens=used.tokens, steps=used.steps, samples=used.samples, staleness=staleness
        )
        weight = self.run.algorithms[record.fragment].aggregator.weights.weigh(work)
        if used.weight != weight:
            yield f"{who} weighs {used.weight}, by {settings.weights} it would be {weight}"

    def _applied(self, record: RoundRecord) -> Iterator[str]:
        applied, seen = dict(self.newest.applied), set()
        for used in record.participants:
            if used.base <= self.newest.applied.get(used.learner, -1) or (
                (used.learner, used.base) in seen
            ):
                yield f"{used.learner}'s contribution against version {used.base} counts twice"
            seen.add((used.learner, used.base))
            applied[used.learner] = max(applied.get(used.learner, 0), used.base)
        if record.applied != applied:
            yield "its `applied` does not follow from its participants"
