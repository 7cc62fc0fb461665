"""Aggregation: accepted files and the present version in, files of the next version out."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from gradientmail.algorithm import DELTA, Algorithm
from gradientmail.algorithms.aggregation import Aggregation
from gradientmail.algorithms.aggregator import PARAMS, UPDATE, Outcome
from gradientmail.closer.intake import Accepted
from gradientmail.codecs.layout import FragmentLayout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import FileSource, FileTarget, PayloadReader, PayloadWriter
from gradientmail.store.disk_errors import disk_errors

OUTER = "outer"


@dataclass(frozen=True, kw_only=True)
class Files:
    """The payload files that the next version is made from; ``outer`` once there is one.

    Attributes:
        version: Which version they are.
        outer_steps: Outer steps that led to it.
    """

    params: Path
    outer: Path | None = None
    version: int = 0
    outer_steps: int = 0


def aggregate(
    algorithm: Algorithm,
    layout: FragmentLayout,
    accepted: Sequence[Accepted],
    present: Files,
    target: Mapping[str, Path],
) -> Outcome:
    """Write the payloads of the next version to ``target`` (by role), reading by chunks.

    Contributions are taken in the order given. Blocks for as long as it takes.

    Raises:
        PayloadError: the version is not finite, or too large for its codec.
        StoreFullError: the spool's disk is full.
    """
    formats = roles(algorithm, layout.numel)
    delta = algorithm.delta_format(layout.numel)
    with ExitStack() as stack:
        stack.enter_context(disk_errors(target[PARAMS].parent))
        sources = [
            _Delta(PayloadReader(delta, stack.enter_context(FileSource(one.path))))
            for one in accepted
        ]
        files = {PARAMS: present.params, OUTER: present.outer}
        readers = {
            section: PayloadReader(formats[role], stack.enter_context(FileSource(path)))
            for role, path in files.items()
            if path is not None
            for section in formats[role].sections
        }
        state = _State(readers, present.version, present.outer_steps)
        sink = _Sink()
        for role, payload_format in formats.items():
            file = stack.enter_context(FileTarget(target[role]))
            writer = PayloadWriter(payload_format, file)
            sink.writers.update(dict.fromkeys(payload_format.sections, writer))
        counters = [
            replace(one.counters, staleness=present.version - one.record.base) for one in accepted
        ]
        return Aggregation(algorithm.aggregator, layout, counters, sources).run(state, sink)


def roles(algorithm: Algorithm, numel: int) -> dict[str, PayloadFormat]:
    """Return the format of every payload a version of ``numel`` elements has, by role."""
    formats = {
        PARAMS: algorithm.params_format(numel),
        OUTER: algorithm.outer_format(numel),
        UPDATE: algorithm.update_format(numel),
    }
    return {role: found for role, found in formats.items() if found is not None}


@dataclass(frozen=True)
class _Delta:
    reader: PayloadReader

    def read(self, start: int, stop: int) -> Tensor:
        return self.reader.read(DELTA, start, stop)


@dataclass(frozen=True)
class _State:
    readers: Mapping[str, PayloadReader]
    version: int
    outer_steps: int

    def read(self, section: str, start: int, stop: int) -> Tensor | None:
        reader = self.readers.get(section)
        return None if reader is None else reader.read(section, start, stop)


@dataclass
class _Sink:
    writers: dict[str, PayloadWriter] = field(default_factory=dict)

    @property
    def sections(self) -> frozenset[str]:
        return frozenset(self.writers)

    def write(self, section: str, start: int, chunk: Tensor) -> Tensor:
        return self.writers[section].write(section, start, chunk)
