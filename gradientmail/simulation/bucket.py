"""The truth behind every process's store: all that was ever written, and when.

It is no ``Store``: its operations happen at one instant. A process reaches it by a ``line.Line``.
"""

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import xxhash

from gradientmail.store.base import Created, Entry

NEVER = -math.inf
NOW = math.inf


class Mutation(NamedTuple):
    """One change: ``operation`` is create, put or delete, and ``data`` None for a delete."""

    at: float
    process: str
    operation: str
    key: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class _Value:
    since: float
    data: bytes | None
    tag: str


@dataclass
class Bucket:
    """Objects with their past.

    Attributes:
        now: Returns the time.
        mutations: Every change that took effect, in order.
    """

    now: Callable[[], float]
    mutations: list[Mutation] = field(default_factory=list)
    _values: dict[str, list[_Value]] = field(default_factory=dict)
    _keys: list[str] = field(default_factory=list)

    def create(self, process: str, key: str, data: bytes) -> Created:
        """Create ``key``, or find it there."""
        if self.read(key) is not None:
            return Created.EXISTS
        self._change(process, "create", key, data)
        return Created.CREATED

    def put(self, process: str, key: str, data: bytes) -> None:
        """Write ``key``."""
        self._change(process, "put", key, data)

    def delete(self, process: str, key: str) -> None:
        """Remove ``key``, if it is there."""
        if self.read(key) is not None:
            self._change(process, "delete", key, None)

    def read(self, key: str, as_of: float = NOW) -> bytes | None:
        """Return the object as it was at ``as_of``."""
        value = self._value(key, as_of)
        return None if value is None else value.data

    def born(self, key: str) -> float:
        """Return when ``key`` was first written; NEVER when it was not."""
        values = self._values.get(key)
        return values[0].since if values else NEVER

    def list(self, prefix: str, after: str = "", as_of: float = NOW) -> list[Entry]:
        """Return the entries there were at ``as_of``."""
        first = bisect.bisect_left(self._keys, prefix)
        if after >= prefix:
            first = max(first, bisect.bisect_right(self._keys, after))
        entries = []
        for key in self._keys[first:]:
            if not key.startswith(prefix):
                break
            value = self._value(key, as_of)
            if value is not None and value.data is not None:
                entries.append(Entry(key, len(value.data), value.tag))
        return entries

    def _value(self, key: str, as_of: float) -> _Value | None:
        for value in reversed(self._values.get(key, ())):
            if value.since <= as_of:
                return value
        return None

    def _change(self, process: str, operation: str, key: str, data: bytes | None) -> None:
        now = self.now()
        if key not in self._values:
            self._values[key] = []
            bisect.insort(self._keys, key)
        tag = "" if data is None else xxhash.xxh3_64_hexdigest(data)
        self._values[key].append(_Value(now, data, tag))
        self.mutations.append(Mutation(now, process, operation, key, data))
