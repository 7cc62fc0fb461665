"""Compiled rounding: scaled numbers to the codes of a grid, and the errors; see ``grids``.

Loops are cut so that compilers vectorize them. A constant 64 is one trip of a vector loop; a
constant 32 is unrolled before it could become one, so blocks of 32 go by pairs. What is written
between two loops is kept narrow: a tile and its codes fit into the innermost cache.
"""

from typing import Any, Final

import numpy as np
import torch

from gradientmail.codecs.compiling import kernel
from gradientmail.codecs.grids import ERROR_STEPS, NF4_LEVELS, level_tables
from gradientmail.codecs.layout import TILE

Array = Any
"""A numpy array, flat and C-contiguous."""

Number = Any
"""A number of fixed width."""

INTEGERS, E2M1, E4M3, LEVELS = 0, 1, 2, 3
"""Kinds of grids."""

Form = tuple[int, int, int]
"""Kind, numbers a block, numbers a byte."""

Grid = tuple[Form, Number]
"""Form; peak, float32."""

f32, i16, i32, u8 = np.float32, np.int16, np.int32, np.uint8

_PAIR: Final = 64  # numbers in two blocks of 32
_MAGIC: Final = f32(12582912.0)  # 1.5 * 2^23: a sum with it holds the nearest integer in its bits
_CELL_MAGIC: Final = f32(6144.0)  # 1.5 * 2^23 / 2048: the nearest cell of ``grids._Levels``
_EXPONENT: Final = i32(0x7F800000)
_ERROR: Final = f32(ERROR_STEPS)


def _bounds() -> tuple[np.int16, ...]:
    """Return the least cell of each level but the first; see ``grids._Levels``."""
    codes, _, _ = level_tables(NF4_LEVELS, torch.device("cpu"))
    first = len(codes) // 2
    return tuple(i16((codes < code).sum().item() - first) for code in range(1, 16))


_VALUES: Final = np.array(NF4_LEVELS, np.float32)
_BOUNDS: Final = _bounds()
_PLACES: Final = tuple(i16(place) for place in np.rint(_VALUES * f32(8.0 * ERROR_STEPS)))
"""Of the levels, in half cells."""
_LEAST_OF_ODD: Final = _BOUNDS[0::2]
_EVEN, _ODD = _PLACES[0::2], _PLACES[1::2]
PART: Final = 2048
"""Numbers at a time: they and their cells leave room in the innermost cache."""


# -- of any kind ------------------------------------------------------------------------------


@kernel
def snap(y: Array, grid: Grid) -> None:
    """Round positive numbers to the grid."""
    form, peak = grid
    if form[0] == INTEGERS:
        for b in range(y.size):
            y[b] = min(np.rint(y[b]), peak)
    elif form[0] == E2M1:
        for b in range(y.size):
            magnitude = f32(min(y[b], peak))
            magic = magic_of(magnitude, 1, 1)
            y[b] = (magnitude + magic) - magic
    elif form[0] == E4M3:
        for b in range(y.size):
            magnitude = f32(min(y[b], peak))
            magic = magic_of(magnitude, 3, 7)
            y[b] = (magnitude + magic) - magic
    else:
        for b in range(y.size):
            y[b] = _VALUES[level_of(cell_of(y[b]))]


@kernel
def round_once(x: Array, inverses: Array, grid: Grid, out: Array) -> None:
    """Fill the codes of blocks of 64, which take a byte each."""
    form, peak = grid
    low, high = _MAGIC - peak, _MAGIC + peak
    for b in range(inverses.size):
        own, codes, inverse = x[b * 64 : b * 64 + 64], out[b * 64 : b * 64 + 64], inverses[b]
        if form[0] == INTEGERS:
            for i in range(64):
                sum_ = f32(min(max(own[i] * inverse + _MAGIC, low), high))
                codes[i] = u8(sum_.view(np.int32))
        else:
            for i in range(64):
                codes[i] = u8(minifloat_code(own[i] * inverse, peak, 3, 7, 0x80))


@kernel
def round_pairs(x: Array, inverses: Array, grid: Grid, narrow: Array, out: Array) -> None:
    """Fill the codes of blocks of 32: their low four bits count."""
    kind, blocks = grid[0][0], PART // 32
    if kind == INTEGERS:
        pairs_to_integers(x, inverses, grid[1], out)
    elif kind == E2M1:
        pairs_to_e2m1(x, inverses, grid[1], out)
    else:
        for part in range(TILE // PART):
            own, at = x[part * PART : part * PART + PART], part * blocks
            cells_of(own, inverses[at : at + blocks], narrow[0])
            levels_of(narrow[0], out[part * PART : part * PART + PART])


@kernel
def squared_errors(x: Array, inverses: Array, grid: Grid, narrow: Array, errors: Array) -> None:
    """Sum the squared errors of each block of 32; see ``grids``."""
    if grid[0][0] == E2M1:
        e2m1_errors(x, inverses, grid[1], errors)
    else:
        blocks = PART // 32
        for part in range(TILE // PART):
            at = part * blocks
            own, inverse = x[part * PART : part * PART + PART], inverses[at : at + blocks]
            cells_of(own, inverse, narrow[0])
            distances_of(narrow[0], narrow[1])
            sum_squares(narrow[1], errors[at : at + blocks])


# -- integers ----------------------------------------------------------------------------------


@kernel
def pairs_to_integers(x: Array, inverses: Array, peak: Number, out: Array) -> None:
    """Round blocks of 32 to integers."""
    low, high = _MAGIC - peak, _MAGIC + peak
    for b in range(0, inverses.size, 2):
        own, codes = x[b * 32 : b * 32 + _PAIR], out[b * 32 : b * 32 + _PAIR]
        first, second = inverses[b], inverses[b + 1]
        for i in range(_PAIR):
            y = own[i] * (first if i < 32 else second)
            sum_ = f32(min(max(y + _MAGIC, low), high))
            codes[i] = u8(sum_.view(np.int32))


# -- minifloats --------------------------------------------------------------------------------


@kernel
def magic_of(magnitude: Number, mantissa: int, bias: int) -> Number:
    """Return what rounds a magnitude when it is added; see ``grids._Minifloats.snap_``."""
    normal = f32(1.0) / f32(1 << (bias - 1))
    power = i32(f32(max(magnitude, normal)).view(np.int32) & _EXPONENT)
    return i32(power + i32(((23 - mantissa) << 23) | 0x400000)).view(np.float32)


@kernel
def minifloat_code(y: Number, peak: Number, mantissa: int, bias: int, sign: int) -> Number:
    """Return the code of the nearest minifloat.

    The sum with what rounds it holds the code: its last bits count the grid's steps, from half
    of the power of two on, and its exponent the powers. Shifts are vectorized where it is called
    with plain numbers.
    """
    magnitude = f32(min(abs(y), peak))
    bits = f32(magnitude + magic_of(magnitude, mantissa, bias)).view(np.int32)
    count = i32(bits & i32((4 << mantissa) - 1))
    first = i32(((127 + 1 - bias + 23 - mantissa) << mantissa) + (1 << mantissa) // 2)
    code = i32(i32(count + i32(bits >> i32(23 - mantissa))) - first)
    negative = i32(i32(f32(y).view(np.int32) >> i32(31)) & i32(sign))
    return i32(code | (negative if count != i32(0) else i32(0)))


@kernel
def pairs_to_e2m1(x: Array, inverses: Array, peak: Number, out: Array) -> None:
    """Round blocks of 32 to floats of one mantissa bit."""
    for b in range(0, inverses.size, 2):
        own, codes = x[b * 32 : b * 32 + _PAIR], out[b * 32 : b * 32 + _PAIR]
        first, second = inverses[b], inverses[b + 1]
        for i in range(_PAIR):
            y = own[i] * (first if i < 32 else second)
            codes[i] = u8(minifloat_code(y, peak, 1, 1, 8))


@kernel
def e2m1_errors(x: Array, inverses: Array, peak: Number, errors: Array) -> None:
    """Sum the squared errors of each block of 32."""
    for b in range(0, errors.size, 2):
        own, first, second = x[b * 32 : b * 32 + _PAIR], inverses[b], inverses[b + 1]
        one, two = i32(0), i32(0)
        for i in range(_PAIR):
            y = abs(own[i] * (first if i < 32 else second))
            magnitude = f32(min(y, peak))
            magic = magic_of(magnitude, 1, 1)
            error = i32(np.rint((((magnitude + magic) - magic) - y) * _ERROR))
            square = i32(error * error)
            one = i32(one + (square if i < 32 else i32(0)))
            two = i32(two + (i32(0) if i < 32 else square))
        errors[b], errors[b + 1] = f32(one), f32(two)


# -- levels: which of sixteen, by four comparisons of cells ------------------------------------


@kernel
def cell_of(y: Number) -> Number:
    """See ``grids._Levels``; within its bound, as no scale lets a number come near it."""
    return i16(f32(y + _CELL_MAGIC).view(np.int32))


@kernel
def cells_of(x: Array, inverses: Array, out: Array) -> None:
    """Fill the cells of numbers of blocks of 32."""
    for b in range(0, inverses.size, 2):
        own, cells = x[b * 32 : b * 32 + _PAIR], out[b * 32 : b * 32 + _PAIR]
        first, second = inverses[b], inverses[b + 1]
        for i in range(_PAIR):
            cells[i] = cell_of(own[i] * (first if i < 32 else second))


@kernel
def eighth_of(cell: Number) -> tuple[bool, bool, bool]:
    """Return the upper three bits of the code of a cell."""
    upper = cell >= _BOUNDS[7]
    middle = cell >= (_BOUNDS[11] if upper else _BOUNDS[3])
    above = _BOUNDS[13] if upper else _BOUNDS[5]
    below = _BOUNDS[9] if upper else _BOUNDS[1]
    return upper, middle, cell >= (above if middle else below)


@kernel
def of_eight(values: tuple[Number, ...], eighth: tuple[bool, bool, bool]) -> Number:
    """Return the value of an eighth, by choices: a table would be read one number at a time."""
    upper, middle, last = eighth
    first = values[4] if upper else values[0]
    second = values[5] if upper else values[1]
    third = values[6] if upper else values[2]
    fourth = values[7] if upper else values[3]
    low, high = third if middle else first, fourth if middle else second
    return high if last else low


@kernel
def level_of(cell: Number) -> Number:
    """Return the code of a cell."""
    eighth = eighth_of(cell)
    upper, middle, last = eighth
    code = i16(8) if upper else i16(0)
    code = i16(code + (i16(4) if middle else i16(0)))
    code = i16(code + (i16(2) if last else i16(0)))
    return i16(code + (i16(1) if cell >= of_eight(_LEAST_OF_ODD, eighth) else i16(0)))


@kernel
def levels_of(cells: Array, out: Array) -> None:
    """Fill the codes of cells."""
    for i in range(cells.size):
        out[i] = u8(level_of(cells[i]))


@kernel
def distances_of(cells: Array, out: Array) -> None:
    """Fill how far cells are from the nearest level, in half cells."""
    for i in range(cells.size):
        eighth, place = eighth_of(cells[i]), i16(cells[i] + cells[i])
        even, odd = of_eight(_EVEN, eighth), of_eight(_ODD, eighth)
        out[i] = min(abs(i16(place - even)), abs(i16(odd - place)))


@kernel
def sum_squares(distances: Array, errors: Array) -> None:
    """Sum the squares of each block of 32."""
    for b in range(0, errors.size, 2):
        own, one, two = distances[b * 32 : b * 32 + _PAIR], i32(0), i32(0)
        for i in range(_PAIR):
            square = i32(i32(own[i]) * i32(own[i]))
            one = i32(one + (square if i < 32 else i32(0)))
            two = i32(two + (i32(0) if i < 32 else square))
        errors[b], errors[b + 1] = f32(one), f32(two)
