"""Contributions in files, summed range by range: read, decoded and added in one go."""

import functools
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gradientmail.algorithm import DELTA
from gradientmail.algorithms.combining import Combination, Decoded
from gradientmail.algorithms.merge import Coefficients
from gradientmail.algorithms.reduce import BLOCK
from gradientmail.codecs import native
from gradientmail.codecs.layout import CHUNK, TILE, FragmentLayout, chunks
from gradientmail.codecs.precision import Precision
from gradientmail.codecs.streaming import PayloadReader, bytes_of

_ROOM_BYTES: Final = 5 << 18
"""Stored bytes of all contributions that a thread holds at once: they stay in cache."""


@dataclass(frozen=True)
class Posted:
    """One contribution in a file."""

    reader: PayloadReader

    def read(self, start: int, stop: int) -> Tensor:
        """See ``Readable.read``."""
        return self.reader.read(DELTA, start, stop)


@dataclass(frozen=True)
class _Room:
    """What ranges of one length are read into: as arrays for kernels, and as bytes, by source."""

    arrays: Sequence[Any]
    rows: Sequence[Sequence[memoryview]]


class _Rooms(threading.local):
    """Those of one thread, the same for each range: fresh memory is slow."""

    def __init__(self) -> None:
        self.by_length: dict[int, _Room] = {}


@dataclass(frozen=True)
class Fused:
    """``Combine`` by compiled kernels: the bits of ``combining.Decoded``. From any thread.

    Memory: ``_ROOM_BYTES`` at most for each thread and length of range, and the sums.
    """

    layout: FragmentLayout
    precision: Precision
    sources: Sequence[Posted]
    _own: _Rooms = field(default_factory=_Rooms)
    _zeros: Any = field(default_factory=lambda: np.zeros(CHUNK // BLOCK, np.int32))

    @functools.cached_property
    def _offsets(self) -> list[int]:
        return [slot.offset for slot in self.layout.slots]

    def __call__(
        self, start: int, stop: int, coefficients: Coefficients, units: Coefficients | None
    ) -> Combination:
        """See ``Combine``."""
        sums = native.room_for((stop - start) // BLOCK)
        length = length_at_once(self.precision, len(self.sources))
        for low, high in chunks(start, stop, length):
            part = (
                sums[0][low - start : high - start],
                sums[1][(low - start) // BLOCK : (high - start) // BLOCK],
                sums[2][(low - start) // BLOCK : (high - start) // BLOCK],
            )
            if not self._sum(low, high, [coefficients, *([units] if units else [])], part):
                # A contribution is not what it was when it was judged: this says which, and how.
                return Decoded(self.layout, self.sources)(start, stop, coefficients, units)
        return Combination(*sums)

    def _sum(self, low: int, high: int, kinds: Sequence[Coefficients], sums: native.Sums) -> bool:
        first, numbers = self._numbered(low, high)
        stop = first + 1 + int(numbers[-1])
        factors = np.array([[own[first:stop] for own in kind] for kind in kinds], np.float32)
        factors = factors.reshape(len(kinds), len(self.sources), stop - first)
        stored = self._stored(low, high)
        return native.combine(stored, self.precision, factors, numbers, sums)

    def _numbered(self, low: int, high: int) -> tuple[int, Any]:
        """Return the first tensor in a range, and of each block how many come before its own."""
        first, last = (bisect_right(self._offsets, place) - 1 for place in (low, high - 1))
        blocks = (high - low) // BLOCK
        if first == last:
            return first, self._zeros[:blocks]
        offsets = np.array(self._offsets[first + 1 : last + 1])
        places = np.arange(low, high, BLOCK)
        return first, np.searchsorted(offsets, places, side="right").astype(np.int32)

    def _stored(self, low: int, high: int) -> Sequence[Any]:
        """Read the entries of a range of all contributions."""
        length, rooms = high - low, self._own.by_length
        if length not in rooms:
            rooms[length] = _room(self.precision, len(self.sources), length)
        room = rooms[length]
        for source, row in zip(self.sources, room.rows, strict=True):
            source.reader.read_stored(DELTA, low, row)
        return room.arrays


def length_at_once(precision: Precision, contributions: int) -> int:
    """Return how many elements of each contribution to read at once: whole tiles."""
    fitting = int(_ROOM_BYTES / (precision.bytes_per_parameter * max(1, contributions)))
    return min(CHUNK, max(TILE, fitting // TILE * TILE))


def _room(precision: Precision, contributions: int, numel: int) -> _Room:
    entries = [
        torch.empty((contributions, numel // entry.per), dtype=native.DTYPES[entry.dtype])
        for entry in precision.entries
    ]
    rows = [[bytes_of(items[row]) for items in entries] for row in range(contributions)]
    return _Room([native.as_array(items) for items in entries], rows)
