"""Compiled decoding, alone or fused with the sums that closing a round is made of.

A piece of a tile is decoded, scaled and added while it is in the innermost cache, contribution
after contribution, so that sums are written to memory once. Each number takes the roundings of the
torch path: value times scale, times coefficient, plus sum.
"""

from typing import Any, Final

import numpy as np

from gradientmail.codecs.compiling import kernel
from gradientmail.codecs.layout import ALIGN, TILE
from gradientmail.codecs.rounding import E4M3, INTEGERS, Array, Form, Number

f32, f64, i32 = np.float32, np.float64, np.int32

F32, F16, BF16 = 0, 1, 2
"""Kinds of plain floats."""

PIECE: Final = 1024
_BLOCKS: Final = PIECE // ALIGN

Stored = tuple[Any, Any, Any]
"""Entries of several contributions: bases int16 [N, tiles], scales uint8 [N, blocks], codes uint8
[N, bytes]."""


@kernel
def combine_tiles(
    form: Form, pairs: Array, stored: Stored, factors: Array, slots: Array, sums: tuple[Array, ...]
) -> Number:
    """Add up N stored contributions; return 0, or the number, from 1, of one that is not valid.

    Args:
        form: See ``encoding``.
        pairs: int64 [256]: the two float32 that a byte of NF4 or F4 stands for.
        stored: What to add.
        factors: float32 [1 or 2, N, tensors]: what each sum multiplies by.
        slots: int32, the tensor of each block of ``ALIGN``.
        sums: float32 to fill with the first sum; float64 with each block's squares of it, and of
            the second sum where there is one.
    """
    bases, scales, codes = stored
    total, squares, unit_squares = sums
    values, room = np.empty(PIECE, np.float32), np.empty((2, PIECE), np.float64)
    unit, own = np.empty(PIECE, np.float32), np.empty(2 * _BLOCKS, np.float32)
    integers = codes.view(np.int8)
    for piece in range(total.size // PIECE):
        summed = total[piece * PIECE : piece * PIECE + PIECE]
        blocks = slots[piece * _BLOCKS : piece * _BLOCKS + _BLOCKS]
        for i in range(PIECE):
            summed[i], unit[i] = f32(0.0), f32(0.0)
        for n in range(bases.shape[0]):
            base = i32(bases[n, piece * PIECE // TILE])
            if form[0] == INTEGERS and form[2] == 1:  # a code is its value: nothing to look up
                inside = integers[n, piece * PIECE : piece * PIECE + PIECE]
                if not scale_piece(form, scales[n], piece, base, own, values):
                    return n + 1
                add_piece(inside, own, blocks, factors[0, n], summed)
                if factors.shape[0] == 2:
                    add_piece(inside, own, blocks, factors[1, n], unit)
                continue
            decode_piece(form, pairs, codes[n], piece, values)
            if not scale_piece(form, scales[n], piece, base, own, values):
                return n + 1
            add_piece(values, own, blocks, factors[0, n], summed)
            if factors.shape[0] == 2:
                add_piece(values, own, blocks, factors[1, n], unit)
        at = piece * _BLOCKS
        squares_of(summed, room, squares[at : at + _BLOCKS])
        if factors.shape[0] == 2:
            squares_of(unit, room, unit_squares[at : at + _BLOCKS])
    return 0


@kernel
def combine_floats(
    kind: int, rows: Array, factors: Array, slots: Array, sums: tuple[Array, ...]
) -> Number:
    """Add up N contributions in plain floats, uint8 [N, bytes]; else as ``combine_tiles``."""
    total, squares, unit_squares = sums
    values = np.empty(PIECE, np.float32)
    room, unit = np.empty((2, PIECE), np.float64), np.empty(PIECE, np.float32)
    own = np.full(2 * _BLOCKS, f32(1.0), np.float32)
    for piece in range(total.size // PIECE):
        summed = total[piece * PIECE : piece * PIECE + PIECE]
        blocks = slots[piece * _BLOCKS : piece * _BLOCKS + _BLOCKS]
        for i in range(PIECE):
            summed[i], unit[i] = f32(0.0), f32(0.0)
        for n in range(rows.shape[0]):
            if not float_piece(kind, rows[n], piece, values):
                return n + 1
            add_piece(values, own, blocks, factors[0, n], summed)
            if factors.shape[0] == 2:
                add_piece(values, own, blocks, factors[1, n], unit)
        at = piece * _BLOCKS
        squares_of(summed, room, squares[at : at + _BLOCKS])
        if factors.shape[0] == 2:
            squares_of(unit, room, unit_squares[at : at + _BLOCKS])
    return 0


@kernel
def float_piece(kind: int, row: Array, piece: int, out: Array) -> Number:
    """Fill what plain floats stand for; return whether all are within the limit."""
    at, bits, top = piece * PIECE, out.view(np.int32), i32(0)
    if kind == F16:
        halves = row.view(np.int16)[at : at + PIECE]
        for i in range(PIECE):
            magnitude = i32(i32(halves[i]) & i32(0x7FFF))
            normal = i32(i32(magnitude << i32(13)) + i32(112 << 23))
            small = f32(f32(magnitude) * f32(2.0**-24)).view(np.int32)
            kept = normal if magnitude >= i32(0x400) else small
            bits[i] = i32(kept | i32(i32(halves[i]) & i32(-0x80000000)))
            top = max(top, magnitude)
        return top < i32(0x7C00)
    if kind == BF16:
        uppers = row.view(np.int16)[at : at + PIECE]
        for i in range(PIECE):
            bits[i] = i32(i32(uppers[i]) << i32(16))
    else:
        wholes = row.view(np.int32)[at : at + PIECE]
        for i in range(PIECE):
            bits[i] = wholes[i]
    return highest(bits) <= i32((127 + 100) << 23)


@kernel
def combine_coarse(
    table: Array, stored: tuple[Any, Any], factors: Array, slots: Array, sums: tuple[Array, ...]
) -> Number:
    """Add up N contributions in I2 or SIGN; else as ``combine_tiles``.

    Args:
        table: int64 [256, 2 or 4]: the four or eight float32 that a byte of codes stands for.
        stored: Scales, the bits of BF16 in int16 [N, blocks], and codes, uint8 [N, bytes].
        factors: As there.
        slots: As there.
        sums: As there.
    """
    scales, codes = stored
    total, squares, unit_squares = sums
    values, room = np.empty(PIECE, np.float32), np.empty((2, PIECE), np.float64)
    unit, own = np.empty(PIECE, np.float32), np.empty(2 * _BLOCKS, np.float32)
    stride = PIECE // (2 * table.shape[1])
    for piece in range(total.size // PIECE):
        summed, at = total[piece * PIECE : piece * PIECE + PIECE], piece * _BLOCKS
        blocks = slots[at : at + _BLOCKS]
        for i in range(PIECE):
            summed[i], unit[i] = f32(0.0), f32(0.0)
        for n in range(codes.shape[0]):
            look_up(table, codes[n, piece * stride : piece * stride + stride], values)
            if not coarse_scales(scales[n, at : at + _BLOCKS], own):
                return n + 1
            add_piece(values, own, blocks, factors[0, n], summed)
            if factors.shape[0] == 2:
                add_piece(values, own, blocks, factors[1, n], unit)
        squares_of(summed, room, squares[at : at + _BLOCKS])
        if factors.shape[0] == 2:
            squares_of(unit, room, unit_squares[at : at + _BLOCKS])
    return 0


@kernel
def look_up(table: Array, codes: Array, out: Array) -> None:
    """Fill what bytes of codes stand for, unscaled, two numbers at a time."""
    both = out.view(np.int64)
    if table.shape[1] == 2:
        for i in range(codes.size):
            both[2 * i], both[2 * i + 1] = table[codes[i], 0], table[codes[i], 1]
    else:
        for i in range(codes.size):
            for j in range(4):
                both[4 * i + j] = table[codes[i], j]


@kernel
def coarse_scales(scales: Array, own: Array) -> Number:
    """Fill the scale of each 32 numbers; return whether all are valid."""
    bits = own.view(np.int32)
    valid: Number = True
    for b in range(scales.size):
        scale = i32(i32(scales[b]) << i32(16))
        valid &= i32(scale & i32(0x7FFFFFFF)) <= i32((127 + 100) << 23)
        valid &= scale >= i32(0) or scale == i32(-0x80000000)
        bits[2 * b], bits[2 * b + 1] = scale, scale
    return valid


@kernel
def decode_tiles(form: Form, pairs: Array, stored: Stored, out: Array) -> Number:
    """Decode one contribution, N = 1, to float32; return as ``combine_tiles``."""
    bases, scales, codes = stored
    own = np.empty(2 * _BLOCKS, np.float32)
    for piece in range(out.size // PIECE):
        values = out[piece * PIECE : piece * PIECE + PIECE]
        decode_piece(form, pairs, codes[0], piece, values)
        base = i32(bases[0, piece * PIECE // TILE])
        if not scale_piece(form, scales[0], piece, base, own, values):
            return 1
        for b in range(_BLOCKS):
            block = values[b * ALIGN : b * ALIGN + ALIGN]
            first, second = own[2 * b], own[2 * b + 1]
            for i in range(ALIGN):
                block[i] = block[i] * (first if i < 32 else second)
    return 0


@kernel
def decode_piece(form: Form, pairs: Array, codes: Array, piece: int, out: Array) -> None:
    """Fill the values of codes, unscaled; see ``grids``. A NaN of F8_E4M3 becomes one."""
    if form[2] == 2:
        inside = codes[piece * (PIECE // 2) : piece * (PIECE // 2) + PIECE // 2]
        if form[0] == INTEGERS:
            for i in range(PIECE // 2):
                low, high = i32(inside[i] & 15), i32(inside[i] >> 4)
                out[2 * i] = f32(i32(i32(low ^ i32(8)) - i32(8)))
                out[2 * i + 1] = f32(i32(i32(high ^ i32(8)) - i32(8)))
        else:
            both = out.view(np.int64)
            for i in range(PIECE // 2):
                both[i] = pairs[inside[i]]
    elif form[0] == INTEGERS:
        inside = codes[piece * PIECE :]
        for i in range(PIECE):
            out[i] = f32(np.int8(inside[i]))
    elif form[0] == E4M3:
        inside, bits = codes[piece * PIECE :], out.view(np.int32)
        for i in range(PIECE):
            magnitude = i32(inside[i] & 0x7F)
            normal = i32(i32(magnitude << i32(20)) + i32(120 << 23))
            small = f32(f32(magnitude) * f32(1 / 512)).view(np.int32)
            kept = normal if magnitude >= i32(8) else small
            kept = kept if magnitude < i32(0x7F) else i32(0x7FC00000)
            bits[i] = i32(kept | i32(i32(inside[i] & 0x80) << i32(24)))


@kernel
def scale_piece(
    form: Form, scales: Array, piece: int, base: Number, own: Array, values: Array
) -> Number:
    """Fill the scale of each 32 numbers; return whether base and values are valid."""
    bits = own.view(np.int32)
    if form[1] == 32:
        inside = scales[piece * 2 * _BLOCKS : piece * 2 * _BLOCKS + 2 * _BLOCKS]
        for b in range(inside.size):
            bits[b] = i32(i32(i32(inside[b]) + base) << i32(20))
    else:
        inside = scales[piece * _BLOCKS : piece * _BLOCKS + _BLOCKS]
        for b in range(inside.size):
            scale = i32(i32(i32(inside[b]) + base) << i32(20))
            bits[2 * b], bits[2 * b + 1] = scale, scale
    valid = base >= i32(64) and base <= i32(1562)
    if form[0] == E4M3:
        for i in range(PIECE):
            valid &= values[i] == values[i]
    return valid


@kernel
def add_piece(values: Array, own: Array, slots: Array, factors: Array, summed: Array) -> None:
    """Add a piece, of float32 or int8, each block by its scales and its tensor's factor."""
    for b in range(_BLOCKS):
        inside = values[b * ALIGN : b * ALIGN + ALIGN]
        sums = summed[b * ALIGN : b * ALIGN + ALIGN]
        first, second, factor = own[2 * b], own[2 * b + 1], factors[slots[b]]
        for i in range(ALIGN):
            sums[i] = sums[i] + (f32(inside[i]) * (first if i < 32 else second)) * factor


@kernel
def squares_of(x: Array, room: Array, out: Array) -> None:
    """Fill the sum of squares of each block; see ``reduce.block_squares``."""
    first, second = room[0], room[1]
    for i in range(PIECE // 2):
        low, high = f64(x[2 * i]), f64(x[2 * i + 1])
        first[i] = low * low + high * high
    for i in range(PIECE // 4):
        second[i] = first[2 * i] + first[2 * i + 1]
    for i in range(PIECE // 8):
        first[i] = second[2 * i] + second[2 * i + 1]
    for i in range(PIECE // 16):
        second[i] = first[2 * i] + first[2 * i + 1]
    for i in range(PIECE // 32):
        first[i] = second[2 * i] + second[2 * i + 1]
    for i in range(PIECE // 64):
        out[i] = first[2 * i] + first[2 * i + 1]


@kernel
def block_squares(x: Array, out: Array) -> None:
    """Fill the sum of squares of each block of ``ALIGN`` of whole tiles."""
    squares_of_pieces(x, np.empty((2, PIECE), np.float64), out)


@kernel
def squares_of_pieces(x: Array, room: Array, out: Array) -> None:
    """Fill the same, with ``room`` for what ``squares_of`` holds meanwhile."""
    for piece in range(x.size // PIECE):
        at = piece * _BLOCKS
        squares_of(x[piece * PIECE : piece * PIECE + PIECE], room, out[at : at + _BLOCKS])


@kernel
def tile_products(a: Array, b: Array, out: Array) -> None:
    """Fill the inner product of each tile; see ``reduce.tile_products``."""
    room = np.empty((2, TILE // 2), np.float64)
    for tile in range(out.size):
        one, other = a[tile * TILE : tile * TILE + TILE], b[tile * TILE : tile * TILE + TILE]
        half = TILE // 2
        for i in range(half):
            room[0, i] = f64(one[i]) * f64(other[i]) + f64(one[i + half]) * f64(other[i + half])
        out[tile] = halved(room, half)


@kernel
def halved(room: Array, count: int) -> Number:
    """Return the sum of the first ``count`` of ``room[0]``, halves added to halves."""
    held = 0
    while count > 1:
        count //= 2
        source, target = room[held], room[1 - held]
        for i in range(count):
            target[i] = source[i] + source[i + count]
        held = 1 - held
    return room[held, 0]


@kernel
def tile_sums(blocks: Array, out: Array) -> None:
    """Fill the sum of each tile's blocks; see ``coarse.halved_sum``."""
    count = TILE // ALIGN
    room = np.empty((2, count), np.float64)
    for tile in range(out.size):
        for i in range(count):
            room[0, i] = blocks[tile * count + i]
        out[tile] = halved(room, count)


@kernel
def momentum_step(
    theta: Array, gradient: Array, momentum: Array, factors: Array, out: tuple[Array, Array]
) -> None:
    """Fill theta and momentum after a step; see ``outer.sgd.Nesterov``.

    ``factors``: float32: what momentum keeps, the learning rate.
    """
    kept, rate = factors[0], factors[1]
    following, moved = out
    for i in range(theta.size):
        moved[i] = momentum[i] * kept + gradient[i]
        following[i] = theta[i] - (gradient[i] + moved[i] * kept) * rate


@kernel
def highest(bits: Array) -> Number:
    """Return the largest magnitude of float32, as the bits of one."""
    top = i32(0)
    for i in range(bits.size):
        top = max(top, i32(bits[i] & i32(0x7FFFFFFF)))
    return top
