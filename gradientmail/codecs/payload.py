"""The payload object: a safetensors file whose header we write, and check before anything else.

    | 8 bytes: header length | JSON, padded with spaces | entry | entry | ... |
    0                                           data_start (a multiple of 4096)

The data holds the entries of every section without holes, the widest items first, so that each
is aligned. ``__metadata__`` holds at most one string, under the key ``gradientmail``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from gradientmail.codecs.layout import TILE
from gradientmail.codecs.precision import Entry, Precision
from gradientmail.errors import PayloadError, SettingsError

METADATA_LIMIT_BYTES = 262_144
"""What the metadata may take of a header: a record with the norms of ten thousand tensors."""

_PAGE = 4096
_COMPACT: Final[Any] = {"separators": (",", ":"), "ensure_ascii": False}
_LENGTH_BYTES = 8
_METADATA = '{"__metadata__":'
_OUR_METADATA = '{"__metadata__":{"gradientmail":'


@dataclass(frozen=True, slots=True)
class PlacedEntry:
    """One entry of one section: ``items`` of them, from byte ``offset`` of the data."""

    section: str
    entry: Entry
    items: int
    offset: int

    @property
    def end(self) -> int:
        """Where its bytes end in the data."""
        return self.offset + self.items * self.entry.item_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """What a checked header says beyond its format."""

    metadata: str | None
    data_start: int


@dataclass(frozen=True)
class PayloadFormat:
    """Which sections of ``numel`` numbers each a payload holds, and how each is coded.

    >>> outer = PayloadFormat(8192, {"master": Precision.F32, "momentum": Precision.BF16})
    >>> [(placed.section, placed.entry.name, placed.offset) for placed in outer.placed]
    [('master', 'values', 0), ('momentum', 'values', 32768)]

    Raises:
        SettingsError: ``numel`` is not whole tiles.
    """

    numel: int
    sections: Mapping[str, Precision]

    def __post_init__(self) -> None:
        if self.numel % TILE:
            raise SettingsError(
                f"{self.numel} elements are not whole tiles of {TILE}: pad them as layout() does"
            )

    @cached_property
    def placed(self) -> tuple[PlacedEntry, ...]:
        """Every entry in the order of the file."""
        entries = [
            (s, entry) for s, precision in self.sections.items() for entry in precision.entries
        ]
        placed: list[PlacedEntry] = []
        offset = 0
        for section, entry in sorted(entries, key=lambda named: -named[1].item_bytes):
            placed.append(PlacedEntry(section, entry, self.numel // entry.per, offset))
            offset = placed[-1].end
        return tuple(placed)

    def placed_of(self, section: str) -> tuple[PlacedEntry, ...]:
        """Return the entries of one section."""
        return self._by_section[section]

    @cached_property
    def _by_section(self) -> dict[str, tuple[PlacedEntry, ...]]:
        return {s: tuple(p for p in self.placed if p.section == s) for s in self.sections}

    @property
    def data_bytes(self) -> int:
        """Bytes of all entries."""
        return self.placed[-1].end if self.placed else 0

    def size_bytes(self, metadata: str | None) -> int:
        """Bytes of the whole object."""
        return len(self.header(metadata)) + self.data_bytes

    @cached_property
    def max_header_bytes(self) -> int:
        """How many bytes of an object's start surely hold the header, if it is of this format.

        What the format needs, and ``METADATA_LIMIT_BYTES`` for the metadata.
        """
        return len(self.header(None)) + METADATA_LIMIT_BYTES

    def header(self, metadata: str | None) -> bytes:
        """Return all bytes before the data.

        Raises:
            PayloadError: the metadata is longer than a reader accepts.
        """
        text = self._text(metadata)
        if len(text) - len(self._text(None)) > METADATA_LIMIT_BYTES:
            raise PayloadError(f"the metadata takes more than {METADATA_LIMIT_BYTES} bytes")
        length = -(-(_LENGTH_BYTES + len(text)) // _PAGE) * _PAGE - _LENGTH_BYTES
        return length.to_bytes(_LENGTH_BYTES, "little") + text.ljust(length)

    def check_header(self, head: bytes, size_bytes: int) -> Header:
        """Check that an object of ``size_bytes`` that begins with ``head`` is of this format.

        ``head`` is the first ``max_header_bytes`` of it, or all where there are fewer. A format
        and a metadata string have one header text, and only its padding may differ: so one
        comparison refuses foreign, repeated and missing entries, wrong types, shapes, orders and
        holes.

        Raises:
            PayloadError: it is not; the message says why in one line.
        """
        data_start = self._data_start(head)
        text = bytes(head[_LENGTH_BYTES:data_start]).rstrip(b" ")
        try:
            metadata = _metadata(text.decode())
            expected = self._text(metadata)
        except ValueError as error:
            raise PayloadError(f"the header is not JSON: {error}") from None
        if text != expected:
            raise PayloadError(_difference(text, expected))
        if data_start + self.data_bytes != size_bytes:
            raise PayloadError(
                f"{size_bytes} bytes, but the header calls for {data_start + self.data_bytes}"
            )
        return Header(metadata, data_start)

    def _data_start(self, head: bytes) -> int:
        if len(head) < _LENGTH_BYTES:
            raise PayloadError(f"{len(head)} bytes cannot hold a header")
        data_start = _LENGTH_BYTES + int.from_bytes(head[:_LENGTH_BYTES], "little")
        if data_start > self.max_header_bytes:
            raise PayloadError(
                f"the header claims {data_start} bytes, more than {self.max_header_bytes}"
            )
        if data_start > len(head):
            raise PayloadError(f"cut off after {len(head)} of the header's {data_start} bytes")
        return data_start

    def _text(self, metadata: str | None) -> bytes:
        """Return the header's JSON: metadata first, then the entries in the order of the file."""
        if metadata is None:
            return b"{" + self._entries_text
        first = json.dumps({"__metadata__": {"gradientmail": metadata}}, **_COMPACT).encode()
        return first[:-1] + (b"," if self.placed else b"") + self._entries_text

    @cached_property
    def _entries_text(self) -> bytes:
        """The entries as they stand in the header's JSON, and its closing brace."""
        fields = {
            f"{placed.section}.{placed.entry.name}": {
                "dtype": placed.entry.dtype,
                "shape": [placed.items],
                "data_offsets": [placed.offset, placed.end],
            }
            for placed in self.placed
        }
        return json.dumps(fields, **_COMPACT).encode()[1:]


def _metadata(text: str) -> str | None:
    """Read the one string that precedes the entries. Raises ValueError where it is not JSON."""
    if not text.startswith(_METADATA):
        return None
    if not text.startswith(f'{_OUR_METADATA}"'):
        raise PayloadError("the metadata is not one string under the key 'gradientmail'")
    metadata, _ = json.JSONDecoder().raw_decode(text, len(_OUR_METADATA))
    return str(metadata)


def _difference(text: bytes, expected: bytes) -> str:
    pairs = enumerate(zip(text, expected, strict=False))
    at = next((i for i, (found, right) in pairs if found != right), min(len(text), len(expected)))
    low = max(0, at - 40)
    return (
        f"the header differs at byte {_LENGTH_BYTES + at}:"
        f" {ascii(text[low : at + 20])[1:]}, expected {ascii(expected[low : at + 20])[1:]}"
    )
