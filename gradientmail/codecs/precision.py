"""How a number is sent: the formats, and what each one stores."""

from dataclasses import dataclass
from enum import StrEnum

from gradientmail.codecs.layout import TILE

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I16": 2, "I8": 1, "U8": 1}
"""Bytes of one item of each safetensors dtype that a payload holds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored array of a section: a safetensors ``dtype``, one item per ``per`` parameters."""

    name: str
    dtype: str
    per: int

    @property
    def item_bytes(self) -> int:
        """Bytes of one item."""
        return ITEM_BYTES[self.dtype]


class Precision(StrEnum):
    """How parameters travel. Where a tensor need not travel at all, ``None`` stands for it.

    The relative L2 error of each is in ``docs``; I8 is the default of eight bits, NF4 of four.
    """

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    F8_E4M3 = "F8_E4M3"
    I8 = "I8"
    I4 = "I4"
    NF4 = "NF4"
    """The 16 levels of QLoRA (arXiv 2305.14314)."""
    F4 = "F4"
    """E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives; for heavy tails."""
    I2 = "I2"
    """See ``coarse``, as SIGN."""
    SIGN = "SIGN"
    SPARSE = "SPARSE"
    """See ``sparse``."""

    @property
    def block(self) -> int | None:
        """Parameters that share one scale over a tile's base; None where there is none."""
        return _BLOCKS.get(self)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What a section in this precision stores, in the order it is coded."""
        return _ENTRIES[self]

    @property
    def bytes_per_parameter(self) -> float:
        """Stored bytes per parameter, scales included."""
        return sum(entry.item_bytes / entry.per for entry in self.entries)


_BLOCKS = {
    Precision.F8_E4M3: 64,
    Precision.I8: 64,
    Precision.I4: 32,
    Precision.NF4: 32,
    Precision.F4: 32,
}


def _scaled(block: int, codes: Entry) -> tuple[Entry, ...]:
    return Entry("bases", "I16", TILE), Entry("scales", "U8", block), codes


_ENTRIES = {
    Precision.F32: (Entry("values", "F32", 1),),
    Precision.F16: (Entry("values", "F16", 1),),
    Precision.BF16: (Entry("values", "BF16", 1),),
    Precision.F8_E4M3: _scaled(64, Entry("codes", "U8", 1)),
    Precision.I8: _scaled(64, Entry("codes", "I8", 1)),
    Precision.I4: _scaled(32, Entry("codes", "U8", 2)),
    Precision.NF4: _scaled(32, Entry("codes", "U8", 2)),
    Precision.F4: _scaled(32, Entry("codes", "U8", 2)),
    Precision.I2: (Entry("scales", "BF16", 64), Entry("codes", "U8", 4)),
    Precision.SIGN: (Entry("scales", "BF16", 64), Entry("codes", "U8", 8)),
    Precision.SPARSE: (
        Entry("scales", "BF16", TILE // 2),
        Entry("low", "U8", 64),
        Entry("high", "U8", 128),
        Entry("codes", "U8", 256),
    ),
}
