"""Compiled encoding: the steps of ``blocks`` and ``grids``, a tile in cache at a time.

Loops are cut so that compilers vectorize them. A constant 64 is one trip of a vector loop; a
constant 32 is unrolled before it could become one, so blocks of 32 go by pairs.
"""

from typing import Any, Final

import numpy as np

from gradientmail.codecs.compiling import kernel
from gradientmail.codecs.layout import TILE

Array = Any
"""A numpy array, flat and C-contiguous."""

Number = Any
"""A number of fixed width."""

INTEGERS, MINIFLOATS, LEVELS = 0, 1, 2
"""Kinds of grids."""

Form = tuple[int, int, int, int, int, int]
"""Kind, numbers a block, numbers a byte, and of minifloats: mantissa bits, bias, sign bit."""

Grid = tuple[Form, Number, Array]
"""Form; peak, float32; and of levels int32 for each cell: 16 * squared error + code, and after
these the bits of the sixteen levels."""

f32, i32, i64 = np.float32, np.int32, np.int64

_PAIR: Final = 64  # numbers in two blocks of 32
_MAGIC: Final = f32(12582912.0)  # 1.5 * 2^23: a sum with it holds the nearest integer in its bits
_MAGNITUDE: Final = i32(0x7FFFFFFF)
_EXPONENT: Final = i32(0x7F800000)
_ERROR: Final = f32(512.0)  # grids.ERROR_STEPS
_NOISE: Final = f32(32.0 / 12.0)  # blocks.NOISE


@kernel
def encode_tiles(x: Array, grid: Grid, limits: Array, entries: tuple[Array, ...]) -> Number:
    """Encode whole tiles; return the bits of the first magnitude above the limit, or 0.

    Args:
        x: float32.
        grid: To round to.
        limits: int32: the largest magnitude's bits, and the least scale code.
        entries: ``bases`` int16, ``scales`` uint8 and ``codes`` uint8 to fill.
    """
    bases, scales, codes = entries
    form, peak, _ = grid
    block, per = form[1], form[2]
    blocks, stored = TILE // block, TILE // per
    room, small = np.empty((2, TILE), np.int32), np.empty((5, blocks), np.float32)
    tops, steps = np.empty(blocks, np.int32), np.empty(blocks, np.int32)
    for tile in range(bases.size):
        inside = x[tile * TILE : tile * TILE + TILE]
        top = tops_of(inside.view(np.int32), tops, block)
        if top > limits[0]:
            return top
        scale_codes(tops, grid, limits[1], small)
        base = steps_of(small[0].view(np.int32), limits[1], steps)
        bases[tile] = np.int16(base)
        own = codes[tile * stored : tile * stored + stored]
        if form[0] == INTEGERS and per == 2:
            predict_steps(tops, steps, base, peak, small)
            scales_of(steps, base, small[0], small[1])
            pairs_to_integers(inside, small[1], peak, room[0].view(np.float32))
            pack_nibbles(room[0].view(np.int64), own)
        elif per == 2:
            round_by_two_steps(inside, steps, base, grid, room, small)
            pack_nibbles(room[0].view(np.int64), own)
        else:
            scales_of(steps, base, small[0], small[1])
            round_once(inside, small[1], grid, room[0])
            pack_bytes(room[0], own)
        pack_bytes(steps, scales[tile * blocks : tile * blocks + blocks])
    return 0


# -- scales ------------------------------------------------------------------------------------


@kernel
def tops_of(bits: Array, tops: Array, block: int) -> Number:
    """Find the largest magnitude of each block, as float bits; return the largest of all."""
    highest = i32(0)
    for pair in range(bits.size // _PAIR):
        inside = bits[pair * _PAIR : pair * _PAIR + _PAIR]
        one, two = i32(0), i32(0)
        for i in range(_PAIR):
            magnitude = i32(inside[i] & _MAGNITUDE)
            one = max(one, magnitude if i < 32 else i32(0))
            two = max(two, i32(0) if i < 32 else magnitude)
        both = max(one, two)
        if block == 32:
            tops[2 * pair], tops[2 * pair + 1] = one, two
        else:
            tops[pair] = both
        highest = max(highest, both)
    return highest


@kernel
def scale_codes(tops: Array, grid: Grid, least: Number, small: Array) -> None:
    """See ``blocks._scale_codes``: tops, as float bits, to codes in ``small[0]``."""
    tops_f, kept, scales = tops.view(np.float32), small[0], small[1]
    scale_bits, peak = scales.view(np.int32), grid[1]
    for b in range(tops.size):
        scales[b] = tops_f[b] / peak
    round_up(scale_bits, least)
    for b in range(tops.size):
        scale_bits[b] = i32(scale_bits[b] << i32(20))
    for b in range(tops.size):
        kept[b] = tops_f[b] / scales[b]
    snap_tops(kept, grid)
    for b in range(tops.size):
        kept[b] = (kept[b] * scales[b]) / peak
    round_up(kept.view(np.int32), least)


@kernel
def snap_tops(y: Array, grid: Grid) -> None:
    """Round positive numbers to the grid."""
    form, peak, marks = grid
    if form[0] == INTEGERS:
        for b in range(y.size):
            y[b] = min(np.rint(y[b]), peak)
    elif form[0] == MINIFLOATS:
        for b in range(y.size):
            y[b] = snapped(y[b], form, peak)
    else:
        levels = marks[marks.size - 16 :].view(np.float32)
        for b in range(y.size):
            y[b] = levels[marks[cell_of(y[b])] & 15]


@kernel
def round_up(bits: Array, least: Number) -> None:
    """See ``blocks._rounded_up``."""
    for b in range(bits.size):
        bits[b] = max(i32((bits[b] + i32(0xFFFFF)) >> i32(20)), i32(least))


@kernel
def steps_of(codes: Array, least: Number, steps: Array) -> Number:
    """Return the base of a tile's scale codes, and fill the steps above it."""
    top = i32(0)
    for b in range(codes.size):
        top = max(top, codes[b])
    base = max(i32(top - i32(254)), i32(least))
    for b in range(codes.size):
        steps[b] = max(i32(codes[b] - base), i32(0))
    return base


@kernel
def scales_of(steps: Array, base: Number, scales: Array, inverses: Array) -> None:
    """Fill scales and their reciprocals."""
    bits = scales.view(np.int32)
    for b in range(steps.size):
        bits[b] = i32((steps[b] + i32(base)) << i32(20))
    for b in range(steps.size):
        inverses[b] = f32(1.0) / scales[b]


@kernel
def predict_steps(tops: Array, steps: Array, base: Number, peak: Number, small: Array) -> None:
    """See ``blocks._predicted``."""
    tops_f, first, tried, room = tops.view(np.float32), small[0], small[1], small[2]
    lower = np.empty(steps.size, np.int32)
    for b in range(steps.size):
        lower[b] = max(i32(steps[b] - i32(1)), i32(0))
    scales_of(steps, base, first, room)
    scales_of(lower, base, tried, room)
    for b in range(steps.size):
        ratio, top = tried[b] / first[b], tops_f[b] / first[b]
        over = max(top - ratio * peak, f32(0.0))
        rest = max(top - peak, f32(0.0))
        better = over * over + (ratio * ratio) * _NOISE < rest * rest + _NOISE
        steps[b] = lower[b] if better else steps[b]


@kernel
def round_by_two_steps(
    x: Array, steps: Array, base: Number, grid: Grid, room: Array, small: Array
) -> None:
    """Leave codes in ``room[0]``, and in ``steps`` the better ones; see ``blocks._measured``."""
    first, tried, inverses, least, error = small[0], small[1], small[2], small[3], small[4]
    lower, chosen = np.empty(steps.size, np.int32), np.empty(steps.size, np.int32)
    for b in range(steps.size):
        lower[b] = max(i32(steps[b] - i32(1)), i32(0))
    scales_of(steps, base, first, inverses)
    round_pairs(x, inverses, grid, room[0], least)
    scales_of(lower, base, tried, inverses)
    round_pairs(x, inverses, grid, room[1], error)
    for b in range(steps.size):
        ratio = tried[b] / first[b]
        chosen[b] = i32(-1) if (error[b] * ratio) * ratio < least[b] else i32(0)
    for b in range(steps.size):
        steps[b] = lower[b] if chosen[b] < i32(0) else steps[b]
    take_lower(room, chosen)
    if grid[0][0] == MINIFLOATS:
        minifloat_codes(room[0], grid[0])


@kernel
def take_lower(room: Array, chosen: Array) -> None:
    """Replace the blocks of ``room[0]`` that are chosen (-1, else 0) by those of ``room[1]``."""
    for b in range(0, chosen.size, 2):
        kept = room[0, b * 32 : b * 32 + _PAIR]
        other = room[1, b * 32 : b * 32 + _PAIR]
        one, two = chosen[b], chosen[b + 1]
        for i in range(_PAIR):
            kept[i] = i32(kept[i] ^ i32(i32(kept[i] ^ other[i]) & (one if i < 32 else two)))


# -- rounding: fills int32 whose low bits are the codes, or the bits of a minifloat's value ------


@kernel
def pairs_to_integers(x: Array, inverses: Array, peak: Number, out: Array) -> None:
    """Round blocks of 32 to integers."""
    low, high = _MAGIC - peak, _MAGIC + peak
    for b in range(0, inverses.size, 2):
        own, rounded = x[b * 32 : b * 32 + _PAIR], out[b * 32 : b * 32 + _PAIR]
        first, second = inverses[b], inverses[b + 1]
        for i in range(_PAIR):
            y = own[i] * (first if i < 32 else second)
            rounded[i] = min(max(y + _MAGIC, low), high)


@kernel
def round_pairs(x: Array, inverses: Array, grid: Grid, out: Array, errors: Array) -> None:
    """Round blocks of 32, and sum the squared errors of each; see ``grids``."""
    if grid[0][0] == MINIFLOATS:
        pairs_to_minifloats(x, inverses, grid, out.view(np.float32), errors)
    else:
        pairs_to_levels(x, inverses, grid[2], out, errors)


@kernel
def pairs_to_minifloats(x: Array, inverses: Array, grid: Grid, out: Array, errors: Array) -> None:
    """Round blocks of 32 to minifloats, and sum the squared errors."""
    form, peak, _ = grid
    for b in range(0, errors.size, 2):
        own, rounded = x[b * 32 : b * 32 + _PAIR], out[b * 32 : b * 32 + _PAIR]
        first, second, one, two = inverses[b], inverses[b + 1], i32(0), i32(0)
        for i in range(_PAIR):
            y = own[i] * (first if i < 32 else second)
            kept = snapped(y, form, peak)
            rounded[i] = kept
            error = i32(np.rint((kept - y) * _ERROR))
            square = i32(error * error)
            one = i32(one + (square if i < 32 else i32(0)))
            two = i32(two + (i32(0) if i < 32 else square))
        errors[b], errors[b + 1] = f32(one), f32(two)


@kernel
def pairs_to_levels(x: Array, inverses: Array, marks: Array, out: Array, errors: Array) -> None:
    """Look up the mark of each number of blocks of 32, and sum the squared errors."""
    for b in range(0, errors.size, 2):
        own, rounded = x[b * 32 : b * 32 + _PAIR], out[b * 32 : b * 32 + _PAIR]
        first, second, one, two = inverses[b], inverses[b + 1], i32(0), i32(0)
        for i in range(_PAIR):
            rounded[i] = i32(cell_of(own[i] * (first if i < 32 else second)))
        for i in range(_PAIR):
            rounded[i] = marks[np.uint32(rounded[i])]
        for i in range(_PAIR):
            square = i32(rounded[i] >> i32(4))
            one = i32(one + (square if i < 32 else i32(0)))
            two = i32(two + (i32(0) if i < 32 else square))
        errors[b], errors[b + 1] = f32(one), f32(two)


@kernel
def round_once(x: Array, inverses: Array, grid: Grid, out: Array) -> None:
    """Round blocks of 64."""
    form, peak, _ = grid
    values = out.view(np.float32)
    low, high = _MAGIC - peak, _MAGIC + peak
    for b in range(inverses.size):
        own, rounded = x[b * 64 : b * 64 + 64], values[b * 64 : b * 64 + 64]
        inverse = inverses[b]
        if form[0] == INTEGERS:
            for i in range(64):
                rounded[i] = min(max(own[i] * inverse + _MAGIC, low), high)
        else:
            for i in range(64):
                rounded[i] = snapped(own[i] * inverse, form, peak)
    if form[0] == MINIFLOATS:
        minifloat_codes(out, form)


@kernel
def snapped(y: Number, form: Form, peak: Number) -> Number:
    """See ``grids._Minifloats.snap_``."""
    kept = f32(min(max(y, -peak), peak))
    normal = f32(1.0) / f32(1 << (form[4] - 1))
    power = i32(f32(max(abs(kept), normal)).view(np.int32) & _EXPONENT)
    magic = i32(power + i32(((23 - form[3]) << 23) | 0x400000)).view(np.float32)
    return (kept + magic) - magic


@kernel
def cell_of(y: Number) -> Number:
    """See ``grids._Levels``."""
    return i32(i32(np.rint(f32(min(max(y, f32(-1.25)), f32(1.25))) * f32(2048.0))) + i32(2560))


@kernel
def minifloat_codes(values: Array, form: Form) -> None:
    """Replace values of the grid, as float bits, by their codes.

    A normal number's code is in the middle of its bits; a smaller one counts its last place.
    """
    mantissa, bias, sign = form[3], form[4], i32(form[5])
    shift, first = i32(23 - mantissa), i32((127 - bias) << mantissa)
    smallest, places = i32(1 << mantissa), f32(1 << (bias + mantissa - 1))
    for i in range(values.size):
        bits = i32(values[i])
        magnitude = i32(bits & _MAGNITUDE)
        normal = i32(i32(magnitude >> shift) - first)
        small = i32(magnitude.view(np.float32) * places)
        negative = sign if bits < i32(0) else i32(0)
        values[i] = i32((normal if normal >= smallest else small) | negative)


# -- packing -----------------------------------------------------------------------------------


@kernel
def pack_bytes(codes: Array, out: Array) -> None:
    """Keep the low byte of each int32."""
    for i in range(out.size):
        out[i] = np.uint8(codes[i] & i32(255))


@kernel
def pack_nibbles(pairs: Array, out: Array) -> None:
    """Keep the low nibbles of two int32, seen as one int64, as a byte."""
    for i in range(out.size):
        out[i] = np.uint8((pairs[i] & i64(15)) | ((pairs[i] >> i64(28)) & i64(240)))
