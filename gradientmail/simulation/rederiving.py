"""Re-derivation: every version again from its predecessor and its contributions, bit for bit.

It uses the arithmetic (``algorithms``, ``codecs``) in memory, and nothing of the closer.
"""

import json
from collections.abc import Mapping, Sequence

import msgspec
from torch import Tensor

from gradientmail.algorithm import DELTA, Algorithm, algorithm_of
from gradientmail.algorithms.aggregation import Aggregation
from gradientmail.algorithms.aggregator import (
    PARAMS,
    UPDATE,
    Contribution,
    Counters,
    FragmentState,
    Outcome,
)
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.codecs.layout import FragmentLayout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import (
    BufferSource,
    BufferTarget,
    PayloadReader,
    PayloadWriter,
    decoded,
)
from gradientmail.protocol.modules import prefix_of, settings_of
from gradientmail.records.manifest import Manifest
from gradientmail.run import fragment_layout
from gradientmail.simulation.bucket import Mutation
from gradientmail.simulation.checks import COMMIT, Record

OUTER = "outer"


def check_versions(mutations: Sequence[Mutation]) -> list[str]:
    """Return each committed version whose payloads or sums are not what its inputs give."""
    ever = {change.key: change.data for change in mutations if change.data is not None}
    manifest = msgspec.json.decode(ever["manifest.json"], type=Manifest)
    settings = manifest.settings
    prefixes = [prefix_of(one.entries[0].name, settings.modules) for one in manifest.fragments]
    algorithms = [algorithm_of(settings_of(settings, prefix)) for prefix in prefixes]
    specs = {spec.name: spec for spec in manifest.tensors}
    layouts = [fragment_layout(one.entries, specs) for one in manifest.fragments]
    before: list[Record] = json.loads(ever["manifest.json"])["fragments"]
    wrong = []
    for change in mutations:
        match = COMMIT.fullmatch(change.key)
        if match is None or change.data is None:
            continue
        p, record = int(match[1]), json.loads(change.data)
        if not record.get("empty"):
            derivation = _Derivation(algorithms[p], layouts[p], ever)
            wrong += [f"{change.key}: {what}" for what in derivation.check(before[p], record)]
        before[p] = record
    return wrong


class _Derivation:
    """One version again, in memory."""

    def __init__(
        self, algorithm: Algorithm, layout: FragmentLayout, ever: Mapping[str, bytes]
    ) -> None:
        numel = layout.numel
        formats = {
            PARAMS: algorithm.params_format(numel),
            OUTER: algorithm.outer_format(numel),
            UPDATE: algorithm.update_format(numel),
        }
        self._formats = {role: found for role, found in formats.items() if found is not None}
        self._algorithm, self._layout, self._ever = algorithm, layout, ever

    def check(self, before: Record, record: Record) -> list[str]:
        """Return in what ``record``, the version after ``before``, is not what it should be."""
        contributions = [
            self._contribution(one["key"], staleness=record["version"] - 1 - one["base"])
            for one in record["participants"]
        ]
        sections = {
            section: decoded(self._ever[before[role]["key"]], payload_format, section=section)
            for role, payload_format in self._formats.items()
            if role != UPDATE and before.get(role) is not None
            for section in payload_format.sections
        }
        state = FragmentState(
            layout=self._layout,
            version=record["version"] - 1,
            outer_steps=record["outer_steps"] - 1,
            sections=sections,
        )
        sink = _Sink(self._formats)
        closing = Aggregation(
            self._algorithm.aggregator,
            self._layout,
            [one.counters for one in contributions],
            contributions,
        )
        outcome = closing.run(state, sink)
        wrong = [
            f"its {role} is not what its contributions give"
            for role, target in sink.targets.items()
            if bytes(target.data) != self._ever[record[role]["key"]]
        ]
        return wrong if _sums(outcome) == _claims(record) else [*wrong, "its sums are wrong"]

    def _contribution(self, key: str, *, staleness: int) -> Contribution:
        payload_format = self._algorithm.delta_format(self._layout.numel)
        data = self._ever[key]
        delta = decoded(data, payload_format, section=DELTA)
        letter = json.loads(
            PayloadReader(payload_format, BufferSource(data)).header.metadata or ""
        )
        sums = SquareSums(self._layout)
        sums.add(0, delta)
        norms = [
            None if claim is None else norm
            for claim, norm in zip(letter["norms"], sums.norms(), strict=True)
        ]
        counters = Counters(
            steps=letter["steps"],
            tokens=letter["tokens"],
            samples=letter.get("samples", 0),
            norms=norms,
            staleness=staleness,
        )
        return Contribution(counters=counters, delta=delta)


def _sums(outcome: Outcome) -> list[object]:
    each = zip(outcome.weights, outcome.norms, outcome.clips, strict=True)
    return [*each, outcome.cosine, outcome.norm]


def _claims(record: Record) -> list[object]:
    each = [(one["weight"], one["norm"], one["clip"]) for one in record["participants"]]
    return [*each, record.get("cosine"), record.get("norm", 0.0)]


class _Sink:
    """Writes payloads as they would be uploaded."""

    def __init__(self, formats: Mapping[str, PayloadFormat]) -> None:
        self.targets = {role: BufferTarget() for role in formats}
        self._writers: dict[str, PayloadWriter] = {}
        for role, payload_format in formats.items():
            writer = PayloadWriter(payload_format, self.targets[role])
            self._writers |= dict.fromkeys(payload_format.sections, writer)
        self.sections = frozenset(self._writers)

    def write(self, section: str, start: int, chunk: Tensor) -> Tensor:
        """See ``Sink.write``."""
        return self._writers[section].write(section, start, chunk)
