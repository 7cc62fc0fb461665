"""The sets of values that scaled numbers are rounded to, and the codes they are stored as.

A grid works on numbers already divided by their block's scale. Every step of it is one IEEE
float32 operation or one integer operation per element, so that all devices give the same bits.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, Protocol

import torch
from torch import Tensor

from gradientmail.codecs.precision import Precision
from gradientmail.errors import NonFiniteError

ERROR_STEPS: Final = 512.0
"""Steps of one in which rounding errors are counted: integers, which sum the same in any order."""


class Rounding(Protocol):
    """How numbers reach a grid."""

    peak: float
    """The grid's largest value, to which a block's scale maps the largest magnitude."""

    even: bool
    """Whether its values are equally far apart."""

    def snap_(self, scaled: Tensor) -> Tensor:
        """Round float32 ``scaled`` in place to the nearest values of the grid, and return it."""
        ...

    def encode(self, snapped: Tensor) -> Tensor:
        """Return the code of each value of the grid, one a byte."""
        ...

    def squared_errors(self, scaled: Tensor) -> Tensor:
        """Return int32: the square of what rounding changes, in some fixed steps."""
        errors = self.snap_(scaled.clone()).sub_(scaled).mul_(ERROR_STEPS).round_()
        whole = errors.to(torch.int32)
        return whole.mul_(whole)


class Grid(Rounding, Protocol):
    """One quantized format, without its scales; ``encode`` packs the codes as they are stored."""

    def decode(self, codes: Tensor) -> Tensor:
        """Return the float32 values that flat stored codes stand for, freshly allocated."""
        ...


@cache
def grid_of(precision: Precision, device: torch.device) -> Grid:
    """Return the grid of a precision that has bases, its tables on ``device``."""
    match precision:
        case Precision.I8:
            return _Integers(127.0)
        case Precision.F8_E4M3:
            return _E4M3()
        case Precision.I4:
            return _Nibbles(_Integers(7.0), I4_LEVELS, device)
        case Precision.NF4:
            return _Nibbles(_Levels(NF4_LEVELS, device), NF4_LEVELS, device)
        case Precision.F4:
            return _Nibbles(_Minifloats(4, mantissa=1, bias=1, peak=6.0), F4_LEVELS, device)
        case _:
            raise ValueError(f"{precision} has no grid")


# The value of each of the sixteen codes, in the order of the codes.
I4_LEVELS: Final = (
    0.0,
    1.0,
    2.0,
    3.0,
    4.0,
    5.0,
    6.0,
    7.0,
    -8.0,
    -7.0,
    -6.0,
    -5.0,
    -4.0,
    -3.0,
    -2.0,
    -1.0,
)
F4_LEVELS: Final = (
    0.0,
    0.5,
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
    6.0,
    0.0,
    -0.5,
    -1.0,
    -1.5,
    -2.0,
    -3.0,
    -4.0,
    -6.0,
)
NF4_LEVELS: Final = (  # QLoRA, arXiv 2305.14314, appendix E
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


class _Integers(Rounding):
    """The integers from ``-peak`` to ``peak``; ties to even."""

    even = True

    def __init__(self, peak: float) -> None:
        self.peak = peak

    def snap_(self, scaled: Tensor) -> Tensor:
        return scaled.round_().clamp_(-self.peak, self.peak)

    def encode(self, snapped: Tensor) -> Tensor:
        return snapped.to(torch.int8)

    def decode(self, codes: Tensor) -> Tensor:
        return codes.to(torch.float32)


class _Minifloats(Rounding):
    """Floats of a sign, some exponent and ``mantissa`` bits, and no infinity; ties to even."""

    even = False

    def __init__(self, bits: int, *, mantissa: int, bias: int, peak: float) -> None:
        self.peak = peak
        self._sign = 1 << (bits - 1)
        self._sign_shift = 16 - bits
        self._shift = 10 - mantissa
        self._to_half = 2.0 ** (bias - 15)
        self._normal = 2.0 ** (1 - bias)
        self._to_magic = ((23 - mantissa) << 23) | 0x400000

    def snap_(self, scaled: Tensor) -> Tensor:
        """Add, then take away, a float so large that its last bit is the grid's step there.

        That is 1.5 * 2^(23 - mantissa) times the power of two at or under the magnitude, and
        stays the same below the smallest normal number. A negative zero comes out positive.
        """
        scaled.clamp_(-self.peak, self.peak)
        power = scaled.abs().clamp_(min=self._normal).view(torch.int32).bitwise_and_(0x7F800000)
        magic = power.add_(self._to_magic).view(torch.float32)
        return scaled.add_(magic).sub_(magic)

    def encode(self, snapped: Tensor) -> Tensor:
        """Scaled by a power of two, a float16 holds the code as its sign and its middle bits."""
        half = (snapped * self._to_half).to(torch.float16).view(torch.int16)
        codes = (half >> self._shift).bitwise_and_(self._sign - 1)
        codes.bitwise_or_((half >> self._sign_shift).bitwise_and_(self._sign))
        return codes.to(torch.uint8)


class _E4M3(_Minifloats):
    """The OCP 8-bit float: one sign, four exponent and three mantissa bits, up to 448."""

    def __init__(self) -> None:
        super().__init__(8, mantissa=3, bias=7, peak=448.0)

    def decode(self, codes: Tensor) -> Tensor:
        """Go through the float16 again: torch's own cast is 44 times slower than this on a CPU."""
        magnitudes = codes & 0x7F
        if magnitudes.numel() and int(magnitudes.amax()) == 0x7F:
            raise NonFiniteError("a code of F8_E4M3 is NaN")
        half = magnitudes.to(torch.int16).bitwise_left_shift_(7)
        half.bitwise_or_((codes & 0x80).to(torch.int16).bitwise_left_shift_(8))
        return half.view(torch.float16).to(torch.float32).mul_(256.0)


class _Levels(Rounding):
    """Any sixteen rising values in [-1, 1], found in a table of cells, ``CELLS`` to one.

    Nearest up to half a cell: a number so close to the middle of two values may go to either.
    The table goes on to ``BOUND``, so that it knows the error of what saturates.
    """

    CELLS = 2048
    BOUND = 1.25
    peak = 1.0
    even = False

    def __init__(self, levels: Sequence[float], device: torch.device) -> None:
        self.codes, self.values, self.squares = level_tables(levels, device)

    def snap_(self, scaled: Tensor) -> Tensor:
        return scaled.copy_(self.values.index_select(0, self._cell(scaled)).view_as(scaled))

    def encode(self, snapped: Tensor) -> Tensor:
        return self.codes.index_select(0, self._cell(snapped))

    def squared_errors(self, scaled: Tensor) -> Tensor:
        return self.squares.index_select(0, self._cell(scaled)).view_as(scaled)

    def _cell(self, scaled: Tensor) -> Tensor:
        cell = scaled.clamp(-self.BOUND, self.BOUND).mul_(self.CELLS).round_()
        return cell.to(torch.int32).add_(int(self.BOUND * self.CELLS)).view(-1)


def level_tables(levels: Sequence[float], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return of each cell the code (uint8), the value (float32) and the squared error (int32)."""
    values = torch.tensor(levels, device=device)
    last = int(_Levels.BOUND * _Levels.CELLS)
    cells = torch.arange(-last, last + 1, device=device) / _Levels.CELLS
    codes = (cells[:, None] - values).abs().argmin(1)
    errors = ((values[codes] - cells) * (8 * ERROR_STEPS)).round_().to(torch.int32)
    return codes.to(torch.uint8), values[codes], errors.mul_(errors)


class _Nibbles:
    """Two four-bit codes a byte: element 2i in the low half, 2i + 1 in the high one."""

    def __init__(self, rounding: Rounding, levels: Sequence[float], device: torch.device) -> None:
        self.peak = rounding.peak
        self.snap_ = rounding.snap_
        self.squared_errors = rounding.squared_errors
        self.even = rounding.even
        self._rounding = rounding
        values = torch.tensor(levels, device=device)
        pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=1)
        # A pair of float32 values as one 8-byte item: half the look-ups, and no short rows.
        self._pairs = pairs.view(torch.int64).view(-1)

    def encode(self, snapped: Tensor) -> Tensor:
        pairs = self._rounding.encode(snapped).bitwise_and_(0x0F).view(-1).view(torch.int16)
        return pairs.bitwise_or_(pairs >> 4).to(torch.uint8)

    def decode(self, codes: Tensor) -> Tensor:
        return self._pairs.index_select(0, codes.to(torch.int32)).view(torch.float32)
