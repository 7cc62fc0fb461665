"""Compiled encoding: the steps of ``blocks``, a tile in cache at a time."""

from typing import Final

import numpy as np

from gradientmail.codecs.compiling import kernel
from gradientmail.codecs.layout import TILE
from gradientmail.codecs.rounding import (
    INTEGERS,
    PART,
    Array,
    Grid,
    Number,
    round_once,
    round_pairs,
    snap,
    squared_errors,
)

f32, i16, i32, u8 = np.float32, np.int16, np.int32, np.uint8

_PAIR: Final = 64  # numbers in two blocks of 32
_MAGNITUDE: Final = i32(0x7FFFFFFF)
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
    form, peak = grid
    block, per = form[1], form[2]
    blocks, stored = TILE // block, TILE // per
    narrow, nibbles = np.empty((2, PART), np.int16), np.empty(TILE, np.uint8)
    small = np.empty((5, blocks), np.float32)
    tops, steps = np.empty(blocks, np.int32), np.empty(blocks, np.int32)
    for tile in range(bases.size):
        inside = x[tile * TILE : tile * TILE + TILE]
        top = tops_of(inside.view(np.int32), tops, block)
        if top > limits[0]:
            return top
        scale_codes(tops, grid, limits[1], small)
        base = steps_of(small[0].view(np.int32), limits[1], steps)
        bases[tile] = i16(base)
        own = codes[tile * stored : tile * stored + stored]
        if per == 2:
            if form[0] == INTEGERS:
                predict_steps(tops, steps, base, peak, small)
            else:
                measure_steps(inside, steps, base, grid, narrow, small)
            inverses_of(steps, base, small[0], small[1])
            round_pairs(inside, small[1], grid, narrow, nibbles)
            pack_nibbles(nibbles.view(np.int16), own)
        else:
            inverses_of(steps, base, small[0], small[1])
            round_once(inside, small[1], grid, own)
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
    snap(kept, grid)
    for b in range(tops.size):
        kept[b] = (kept[b] * scales[b]) / peak
    round_up(kept.view(np.int32), least)


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
def scales_of(steps: Array, base: Number, below: Number, scales: Array) -> None:
    """Fill the scales of so many steps ``below``."""
    bits = scales.view(np.int32)
    for b in range(steps.size):
        bits[b] = i32(i32(max(i32(steps[b] - i32(below)), i32(0)) + i32(base)) << i32(20))


@kernel
def inverses_of(steps: Array, base: Number, scales: Array, inverses: Array) -> None:
    """Fill scales and their reciprocals."""
    scales_of(steps, base, i32(0), scales)
    for b in range(steps.size):
        inverses[b] = f32(1.0) / scales[b]


@kernel
def predict_steps(tops: Array, steps: Array, base: Number, peak: Number, small: Array) -> None:
    """Replace steps by the better ones; see ``blocks._predicted``."""
    tops_f, first, tried = tops.view(np.float32), small[0], small[1]
    scales_of(steps, base, i32(0), first)
    scales_of(steps, base, i32(1), tried)
    for b in range(steps.size):
        ratio, top = tried[b] / first[b], tops_f[b] / first[b]
        over = max(top - ratio * peak, f32(0.0))
        rest = max(top - peak, f32(0.0))
        better = over * over + (ratio * ratio) * _NOISE < rest * rest + _NOISE
        steps[b] = max(i32(steps[b] - (i32(1) if better else i32(0))), i32(0))


@kernel
def measure_steps(
    x: Array, steps: Array, base: Number, grid: Grid, narrow: Array, small: Array
) -> None:
    """Replace steps by the better ones; see ``blocks._measured``."""
    first, tried, inverses, least, error = small[0], small[1], small[2], small[3], small[4]
    scales_of(steps, base, i32(0), first)
    scales_of(steps, base, i32(1), tried)
    for b in range(steps.size):
        inverses[b] = f32(1.0) / first[b]
    squared_errors(x, inverses, grid, narrow, least)
    for b in range(steps.size):
        inverses[b] = f32(1.0) / tried[b]
    squared_errors(x, inverses, grid, narrow, error)
    for b in range(steps.size):
        ratio = tried[b] / first[b]
        better = (error[b] * ratio) * ratio < least[b]
        steps[b] = max(i32(steps[b] - (i32(1) if better else i32(0))), i32(0))


# -- packing -----------------------------------------------------------------------------------


@kernel
def pack_bytes(codes: Array, out: Array) -> None:
    """Keep the low byte of each int32."""
    for i in range(out.size):
        out[i] = u8(codes[i] & i32(255))


@kernel
def pack_nibbles(pairs: Array, out: Array) -> None:
    """Keep the low nibbles of two bytes, seen as one int16, as a byte."""
    for i in range(out.size):
        out[i] = u8((pairs[i] & i16(15)) | ((pairs[i] >> i16(4)) & i16(240)))
