"""Aggregation: accepted files and the present version in, files of the next version out."""

import contextlib
import ctypes
import functools
import resource
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import torch
from torch import Tensor

from gradientmail.algorithm import Algorithm
from gradientmail.algorithms.aggregation import Aggregation, Each
from gradientmail.algorithms.aggregator import PARAMS, UPDATE, Outcome
from gradientmail.algorithms.merge import RangeMerge
from gradientmail.closer.intake import Accepted
from gradientmail.closer.spool import HashedFile
from gradientmail.closer.summing import Fused, Posted
from gradientmail.codecs import native
from gradientmail.codecs.layout import CHUNK, FragmentLayout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import FileSource, PayloadReader, PayloadWriter
from gradientmail.store.disk_errors import disk_errors

OUTER = "outer"

THREADS: Final = 2
"""Ranges worked on side by side, where torch does the work."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_KEPT_BYTES: Final = 4 << 20  # more than a chunk, so that chunks are kept; few of them

_OPEN_FILES: Final = 1 << 16  # of several fragments' rounds at once

T = TypeVar("T")
Range = tuple[int, int]


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


@dataclass(frozen=True, kw_only=True)
class Written:
    """The next version: what was found, and the digest of each file, by role."""

    outcome: Outcome
    digests: Mapping[str, str]


def aggregate(
    algorithm: Algorithm,
    layout: FragmentLayout,
    accepted: Sequence[Accepted],
    present: Files,
    target: Mapping[str, Path],
) -> Written:
    """Write the payloads of the next version to ``target`` (by role), reading by chunks.

    Contributions are taken in the order given. Blocks for as long as it takes.

    Raises:
        TooFewError: the rule needs more contributions than there are, or the guard leaves.
        PayloadError: the version is not finite, or too large for its codec.
        StoreFullError: the spool's disk is full.
    """
    keep_freed_memory()
    allow_open_files()
    formats = roles(algorithm, layout.numel)
    with disk_errors(target[PARAMS].parent), ExitStack() as stack:

        def reader_of(form: PayloadFormat, path: Path) -> PayloadReader:
            return PayloadReader(form, stack.enter_context(FileSource(path)))

        delta = algorithm.delta_format(layout.numel)
        sources = [Posted(reader_of(delta, one.path)) for one in accepted]
        files = {PARAMS: present.params, OUTER: present.outer}
        readers = {
            section: reader_of(formats[role], path)
            for role, path in files.items()
            if path is not None
            for section in formats[role].sections
        }
        written = {role: stack.enter_context(HashedFile(target[role])) for role in formats}
        sink = _Sink()
        for role, payload_format in formats.items():
            writer = PayloadWriter(payload_format, written[role])
            sink.writers.update(dict.fromkeys(payload_format.sections, writer))
        fused = None if native.why_not() else Fused(layout, algorithm.delta_dtype, sources)
        aggregation = Aggregation(
            algorithm.aggregator,
            layout,
            [replace(o.counters, staleness=present.version - o.record.base) for o in accepted],
            sources,
            combine=fused,
            each=stack.enter_context(side_by_side(_threads(algorithm, fused))),
        )
        state = _State(readers, present.version, present.outer_steps)
        outcome = aggregation.run(state, sink)
        return Written(outcome=outcome, digests={r: file.digest() for r, file in written.items()})


def _threads(algorithm: Algorithm, fused: Fused | None) -> int:
    """Return how many pay.

    Compiled sums are so short that two threads would wait for each other's Python: measured, 1.7
    times the CPU time, and no sooner (``docs/log.md``).
    """
    by_torch = fused is None or isinstance(algorithm.aggregator.merge, RangeMerge)
    return THREADS if by_torch else 1


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory: it halves the CPU time of a closing.

    Chunks come and go, and fresh pages cost more than the arithmetic on them. Only glibc is told.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


@functools.cache
def allow_open_files() -> None:
    """Let this process open as many files as it may: each contribution to a round is one.

    The usual soft limit of 1,024 is there for ``select``, which nothing here uses.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # macOS may refuse: it stays as it was
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def side_by_side(threads: int) -> Iterator[Each]:
    """Return what goes through ranges with several threads, each of one thread within torch.

    At most one range more than threads is finished or in work and not yet taken.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def each(function: Callable[[Range], T], ranges: Iterable[Range]) -> Iterator[T]:
        every, pending = list(ranges), deque[Future[T]]()
        if threads == 1 or not every or every[-1][1] - every[0][0] <= CHUNK:  # no thread pays
            yield from map(function, every)
            return
        for bounds in every:
            pending.append(pool.submit(function, bounds))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    try:
        yield each
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # threads that start later inherit what was set last


def roles(algorithm: Algorithm, numel: int) -> dict[str, PayloadFormat]:
    """Return the format of every payload a version of ``numel`` elements has, by role."""
    formats = {
        PARAMS: algorithm.params_format(numel),
        OUTER: algorithm.outer_format(numel),
        UPDATE: algorithm.update_format(numel),
    }
    return {role: found for role, found in formats.items() if found is not None}


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
