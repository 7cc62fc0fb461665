"""Compiled SPARSE: the steps of ``sparse``, a tile in cache at a time.

Which 64 of 4096 are the largest: of the largest of each of 256 groups, the 64th largest is a bound
that at least 64 numbers reach, and mostly few more. They are picked out, and of them the 64th
largest is found bit by bit. Most of the time goes into the one loop that picks them out.
"""

from typing import Final

import numpy as np

from gradientmail.codecs.compiling import kernel
from gradientmail.codecs.decoding import PIECE, squares_of_pieces
from gradientmail.codecs.layout import ALIGN, TILE
from gradientmail.codecs.rounding import Array, Number
from gradientmail.codecs.sparse import KEPT, LEAST, REFINEMENTS

f32, i32, u8 = np.float32, np.int32, np.uint8

_GROUPS: Final = 256
_MAGNITUDE: Final = i32(0x7FFFFFFF)

Stored = tuple[Array, Array, Array, Array]
"""Entries: scales as the bits of BF16 in int16; low, high and codes uint8."""


@kernel
def encode_tiles(x: Array, limit: Number, entries: Stored) -> Number:
    """Encode whole tiles; return the bits of the first magnitude above the limit, or 0.

    Args:
        x: float32.
        limit: The largest magnitude's bits.
        entries: Flat, to fill.
    """
    scales, low, high, codes = entries
    room, places = np.empty((2, TILE), np.int32), np.empty(TILE, np.int32)
    coded = np.empty(KEPT, np.int32)
    for tile in range(x.size // TILE):
        bits, at = x[tile * TILE : tile * TILE + TILE].view(np.int32), tile * KEPT
        top = magnitudes_of(bits, room[0])
        if top > limit:
            return top
        count = pick(room[0], room[1], places)
        two_magnitudes(room[1].view(np.float32), count, coded, scales[2 * tile : 2 * tile + 2])
        for i in range(count):
            sign = i32(1) if bits[places[i]] < i32(0) else i32(0)
            coded[i] = i32(sign | i32(coded[i] << i32(1)))
        for i in range(count, KEPT):
            places[i] = places[count - 1] if count > 0 else i32(0)
            coded[i] = coded[count - 1] if count > 0 else i32(0)
        for i in range(KEPT):
            low[at + i] = u8(places[i] & 255)
        pack_high(places, high[at // 2 : at // 2 + KEPT // 2])
        pack_codes(coded, codes[at // 4 : at // 4 + KEPT // 4])
    return 0


# -- the largest -------------------------------------------------------------------------------


@kernel
def magnitudes_of(bits: Array, out: Array) -> Number:
    """Fill the magnitudes of float bits; return the largest."""
    top = i32(0)
    for i in range(TILE):
        magnitude = i32(bits[i] & _MAGNITUDE)
        out[i] = magnitude
        top = max(top, magnitude)
    return top


@kernel
def pick(magnitudes: Array, kept: Array, places: Array) -> Number:
    """Fill magnitudes and rising places of the largest; return how many there are, to ``KEPT``."""
    for g in range(_GROUPS):
        kept[g] = magnitudes[g]
    for row in range(_GROUPS, TILE, _GROUPS):
        for g in range(_GROUPS):
            kept[g] = max(kept[g], magnitudes[row + g])
    least = max(reached_by_kept(kept[:_GROUPS]), i32(LEAST))
    found = pick_out(magnitudes, least, kept, places)
    return thin_out(kept, places, found) if found > KEPT else found


@kernel
def pick_out(magnitudes: Array, least: Number, kept: Array, places: Array) -> Number:
    """Fill the magnitudes from ``least`` on, and their places; return how many there are.

    Without branches, which would be guessed wrong: first the eights that hold one, then these.
    """
    flags, eights = np.empty(TILE, np.uint8), np.empty(TILE // 8, np.int32)
    for i in range(TILE):
        flags[i] = u8(1) if magnitudes[i] >= least else u8(0)
    words, hit, found = flags.view(np.int64), 0, 0
    for w in range(TILE // 8):
        eights[hit] = i32(8 * w)
        hit += 1 if words[w] != 0 else 0
    for h in range(hit):
        for i in range(eights[h], eights[h] + 8):
            kept[found], places[found] = magnitudes[i], i32(i)
            found += flags[i]
    return found


@kernel
def thin_out(kept: Array, places: Array, found: Number) -> Number:
    """Keep the ``KEPT`` largest of more; of equal ones the first."""
    least = reached_by_kept(kept[:found])
    above = i32(0)
    for i in range(found):
        above = i32(above + (i32(1) if kept[i] > least else i32(0)))
    equal, count = KEPT - above, 0
    for i in range(found):
        magnitude, place = kept[i], places[i]
        if magnitude > least or (magnitude == least and equal > 0):
            equal -= 1 if magnitude == least else 0
            kept[count], places[count] = magnitude, place
            count += 1
    return count


@kernel
def reached_by_kept(magnitudes: Array) -> Number:
    """Return the largest number that at least ``KEPT`` of the magnitudes reach."""
    least = i32(0)
    for shift in range(30, -1, -1):
        tried = i32(least | i32(i32(1) << i32(shift)))
        count = i32(0)
        for i in range(magnitudes.size):
            count = i32(count + (i32(1) if magnitudes[i] >= tried else i32(0)))
        least = tried if count >= i32(KEPT) else least
    return least


# -- their magnitudes --------------------------------------------------------------------------


@kernel
def two_magnitudes(magnitudes: Array, count: Number, large: Array, scales: Array) -> None:
    """See ``sparse._two_magnitudes``: fill which are large, 0 or 1, and BF16."""
    room = np.empty(KEPT, np.float32)
    for i in range(KEPT):
        large[i] = i32(1)
    threshold = mean_of(magnitudes, count, large, i32(1), room)
    small_mean, large_mean = f32(0.0), f32(0.0)
    for _ in range(REFINEMENTS + 1):
        for i in range(KEPT):
            large[i] = i32(1) if magnitudes[i] > threshold else i32(0)
        lower = mean_of(magnitudes, count, large, i32(0), room)
        upper = mean_of(magnitudes, count, large, i32(1), room)
        small_mean = lower if lower > f32(0.0) else upper
        large_mean = upper if upper > f32(0.0) else lower
        threshold = (small_mean + large_mean) * f32(0.5)
    scales[0], scales[1] = bf16_of(small_mean), bf16_of(large_mean)
    told_apart = i32(1) if scales[1] > scales[0] else i32(0)
    for i in range(KEPT):
        large[i] = i32(large[i] & told_apart)


@kernel
def mean_of(magnitudes: Array, count: Number, large: Array, which: Number, room: Array) -> Number:
    """See ``sparse._mean``: of the first ``count``, those that are large or those that are not."""
    chosen, half = i32(0), KEPT
    for i in range(KEPT):
        taken = i32(1) if i < count and large[i] == which else i32(0)
        chosen = i32(chosen + taken)
        room[i] = magnitudes[i] if taken == i32(1) else f32(0.0)
    while half > 1:
        half //= 2
        for i in range(half):
            room[i] = room[i] + room[i + half]
    return room[0] / f32(max(chosen, i32(1)))


@kernel
def bf16_of(x: Number) -> Number:
    """Round a finite float32 to the bits of BF16; ties to even."""
    bits = f32(x).view(np.int32)
    return np.int16(i32(bits + i32(0x7FFF) + i32((bits >> i32(16)) & i32(1))) >> i32(16))


# -- packing -----------------------------------------------------------------------------------


@kernel
def pack_high(places: Array, out: Array) -> None:
    """Keep the bits of two places above their low eight as a byte."""
    for i in range(out.size):
        out[i] = u8((places[2 * i] >> 8) | ((places[2 * i + 1] >> 8) << 4))


@kernel
def pack_codes(codes: Array, out: Array) -> None:
    """Keep four codes of two bits as a byte."""
    for i in range(out.size):
        first, second = (
            codes[4 * i] | codes[4 * i + 1] << 2,
            codes[4 * i + 2] | codes[4 * i + 3] << 2,
        )
        out[i] = u8(first | second << 4)


# -- decoding ----------------------------------------------------------------------------------


@kernel
def decode_tiles(limit: Number, stored: Stored, out: Array) -> Number:
    """Decode one contribution, N = 1, to float32; return as ``combine_tiles``."""
    places, values = np.empty(KEPT, np.int32), np.empty(KEPT, np.float32)
    for tile in range(out.size // TILE):
        count = read_tile(limit, stored, 0, tile, (places, values))
        if count == 0:
            return 1
        own = out[tile * TILE : tile * TILE + TILE]
        for i in range(TILE):
            own[i] = f32(0.0)
        for i in range(count):
            own[places[i]] = values[i]
    return 0


@kernel
def combine_tiles(
    limit: Number, stored: Stored, factors: Array, slots: Array, sums: tuple[Array, ...]
) -> Number:
    """Add up N stored contributions; see ``decoding.combine_tiles``.

    What a contribution does not hold is not added: zero times a finite factor changes no sum that
    began as +0. So factors must be finite.
    """
    total, squares, unit_squares = sums
    room, unit = np.empty((2, PIECE), np.float64), np.empty(TILE, np.float32)
    read = np.empty(KEPT, np.int32), np.empty(KEPT, np.float32)
    blocks = TILE // ALIGN
    for tile in range(total.size // TILE):
        summed, at = total[tile * TILE : tile * TILE + TILE], tile * blocks
        own = slots[at : at + blocks]
        for i in range(TILE):
            summed[i], unit[i] = f32(0.0), f32(0.0)
        for n in range(stored[0].shape[0]):
            count = read_tile(limit, stored, n, tile, read)
            if count == 0:
                return n + 1
            add_read(read, count, own, factors[0, n], summed)
            if factors.shape[0] == 2:
                add_read(read, count, own, factors[1, n], unit)
        squares_of_pieces(summed, room, squares[at : at + blocks])
        if factors.shape[0] == 2:
            squares_of_pieces(unit, room, unit_squares[at : at + blocks])
    return 0


@kernel
def add_read(
    read: tuple[Array, Array], count: Number, slots: Array, factors: Array, summed: Array
) -> None:
    """Add what a contribution holds of a tile, each by its tensor's factor."""
    places, values = read
    for i in range(count):
        place = places[i]
        summed[place] = summed[place] + values[i] * factors[slots[place // ALIGN]]


@kernel
def read_tile(
    limit: Number, stored: Stored, n: Number, tile: Number, read: tuple[Array, Array]
) -> Number:
    """Fill places and values of a tile; return how many there are, or 0: it is not valid."""
    scales, low, high, codes = stored
    places, values = read
    magnitudes = np.empty(2, np.int32)
    valid: Number = True
    for k in range(2):
        magnitudes[k] = i32(scales[n, 2 * tile + k]) << i32(16)
        valid &= i32(magnitudes[k] & _MAGNITUDE) <= limit
        valid &= magnitudes[k] >= i32(0) or i32(magnitudes[k] & _MAGNITUDE) == i32(0)
    at, count, before, coded = tile * KEPT, 0, i32(-1), u8(0)
    for i in range(KEPT):
        above = high[n, (at + i) // 2] >> (4 * (i % 2)) & 15
        place = i32(low[n, at + i]) | i32(above) << i32(8)
        code = codes[n, (at + i) // 4] >> (2 * (i % 4)) & 3
        valid &= place > before or (place == before and code == coded)
        count += 1 if place != before else 0
        places[count - 1] = place
        value = magnitudes.view(np.float32)[code >> 1]
        values[count - 1] = value * (f32(-1.0) if code & 1 else f32(1.0))
        before, coded = place, code
    return count if valid else 0
