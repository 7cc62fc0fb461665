"""Chunks of numbers to stored entries and back: the scales, and the search for the best ones.

A block of 64 (8-bit) or 32 (4-bit) numbers shares one scale: what a 1 of the grid stands for. It
is a positive float32 with three mantissa bits, ``float_from_bits(c << 20)`` of an eleven-bit
``c``, of which every tile keeps a base (I16) and every block the steps above it (U8): 32 octaves
a tile. Decoding is ``value of the code * scale``: one float32 product, exact in all formats but
NF4.

>>> x = torch.randn(4096)
>>> chunk = encode_chunk(x, Precision.I8)
>>> bool((decode_chunk(chunk, Precision.I8) - x).abs().max() < 0.03)
True
"""

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from gradientmail.codecs import native
from gradientmail.codecs.grids import Grid, grid_of
from gradientmail.codecs.layout import ALIGN, TILE, FragmentLayout
from gradientmail.codecs.precision import Precision
from gradientmail.codecs.sparse import TopK
from gradientmail.errors import NonFiniteError, PayloadError

EncodedChunk = dict[str, Tensor]
"""The stored items of whole tiles by entry name: flat tensors of the dtypes of ``entries``."""

LIMIT = 2.0**100
"""The largest magnitude that may be sent. Far above any gradient; sums of it stay finite."""

_MIN_BASE = 64  # a scale of 2^-119: it and its reciprocal are normal numbers
_HEADROOM = 1  # codes left above a tile's largest, for the search to step up
_MAX_BASE = ((127 + 100) << 3) - 255 + _HEADROOM  # the base of a tile that reaches LIMIT

NOISE = 32 / 12
"""Of a block of 32 on an even grid, in squares of its step."""


class Coarse(Protocol):
    """A format that has no grid and no bases, whose magnitudes were checked."""

    def encode(self, x: Tensor) -> EncodedChunk:
        """Return the entries of flat float32 ``x``."""
        ...

    def decode(self, chunk: EncodedChunk, out: Tensor) -> Tensor:
        """Fill flat float32 ``out`` and return it."""
        ...


_COARSE: Mapping[Precision, Coarse] = {**native.COARSE, Precision.SPARSE: TopK()}


def encode_chunk(x: Tensor, precision: Precision, noise: Tensor | None = None) -> EncodedChunk:
    """Encode a float tensor of whole tiles, of any strides, as flat entries on its device.

    Never shares memory with ``x``. The same numbers give the same bytes wherever a tile lies.
    ``noise``: as many numbers in [0, 1), to round stochastically by, so that the mean of what is
    decoded is ``x`` itself; I8 and I4 only.

    Raises:
        NonFiniteError: NaN or infinity in ``x``.
        PayloadError: a magnitude above ``LIMIT``, or above what F16 can hold.
    """
    x = x.to(torch.float32).reshape(-1)
    if noise is None and native.serves(precision, x.device):
        room = native.Room.to_encode(x.numel(), precision)
        if native.encode(x, precision, room):
            return room.entries
    if precision in _COARSE:
        check_magnitude(x, LIMIT)
        return _COARSE[precision].encode(x)
    if precision.block is None:
        dtype = native.DTYPES[precision.value]
        check_magnitude(x, min(LIMIT, torch.finfo(dtype).max))
        return {"values": x.to(dtype, copy=True)}
    rows = x.view(-1, precision.block)
    grid = grid_of(precision, x.device)
    absmax = rows.abs().amax(1)
    check_magnitude(absmax, LIMIT)
    # Where the mean is to stay, nothing may saturate.
    codes = _scale_codes(absmax, grid) if noise is None else _rounded_up(_by_peak(absmax, grid))
    codes = codes.view(-1, TILE // precision.block)
    bases = (codes.amax(1, keepdim=True) + (_HEADROOM - 255)).clamp_(min=_MIN_BASE)
    steps = (codes - bases).clamp_(min=0)
    if noise is None and precision.entries[-1].per == 2:
        steps = _best_steps(rows, steps, bases, grid)
    scaled = rows * _scales(steps, bases).reciprocal_()
    if noise is not None:
        scaled.add_(noise.view_as(scaled)).floor_()
    return {
        "bases": bases.view(-1).to(torch.int16),
        "scales": steps.view(-1).to(torch.uint8),
        "codes": grid.encode(grid.snap_(scaled)).view(-1),
    }


def decode_chunk(chunk: EncodedChunk, precision: Precision, out: Tensor | None = None) -> Tensor:
    """Decode whole tiles to a flat float32 tensor: ``out`` where given, which is contiguous.

    Whatever the bytes, every number returned is finite.

    Raises:
        NonFiniteError: a stored value is NaN or infinity.
        PayloadError: a stored value is above ``LIMIT``, or a base is one no encoder writes.
    """
    last = precision.entries[-1]
    if native.serves(precision, chunk[last.name].device):
        x = torch.empty(chunk[last.name].numel() * last.per) if out is None else out
        if native.decode(chunk, precision, x):
            return x
    if precision in _COARSE:
        return _decode_coarse(chunk, precision, out)
    if precision.block is None:
        values = chunk["values"]
        x = values.to(torch.float32, copy=True) if out is None else out.copy_(values)
        check_magnitude(x, LIMIT)
        return x
    bases = chunk["bases"].to(torch.int32).view(-1, 1)
    if ((bases < _MIN_BASE) | (bases > _MAX_BASE)).any():
        raise PayloadError(f"a scale base is not within {_MIN_BASE} and {_MAX_BASE}")
    steps = chunk["scales"].to(torch.int32).view(-1, TILE // precision.block)
    values = grid_of(precision, bases.device).decode(chunk["codes"]).view(-1, precision.block)
    target = values if out is None else out.view(-1, precision.block)
    return torch.mul(values, _scales(steps, bases), out=target).view(-1)


def _decode_coarse(chunk: EncodedChunk, precision: Precision, out: Tensor | None) -> Tensor:
    scales = chunk["scales"].to(torch.float32)
    check_magnitude(scales, LIMIT)
    if bool((scales < 0).any()):
        raise PayloadError("a scale is negative")
    if out is None:
        codes = chunk["codes"]
        out = torch.empty(codes.numel() * precision.entries[-1].per, device=codes.device)
    return _COARSE[precision].decode(chunk, out)


def block_slots(layout: FragmentLayout) -> Tensor:
    """Return int32 [numel / ALIGN]: which slot each block of ``ALIGN`` elements belongs to.

    Padding counts to the slot before it. So a coefficient per tensor becomes one per block.
    """
    starts = [slot.offset for slot in layout.slots] + [layout.numel]
    counts = torch.tensor(starts).div(ALIGN, rounding_mode="floor").diff()
    return torch.arange(len(layout.slots), dtype=torch.int32).repeat_interleave(counts)


def check_magnitude(x: Tensor, limit: float = LIMIT) -> None:
    """Refuse numbers that are not finite or too large.

    On the integer bits NaN sorts above infinity and infinity above every number.

    Raises:
        NonFiniteError: NaN or infinity in float32 ``x``.
        PayloadError: a magnitude above ``limit``.
    """
    if not x.numel():
        return
    top = native.highest(x)
    if top is None:
        top = (x.view(torch.int32) & 0x7FFFFFFF).amax().view(torch.float32).item()
    if not math.isfinite(top):
        raise NonFiniteError("a value is NaN or infinite")
    if top > limit:
        raise PayloadError(f"a value of magnitude {top:.4g} is above the largest, {limit:.4g}")


def _scale_codes(absmax: Tensor, grid: Grid) -> Tensor:
    """Return the smallest scale that maps what remains of ``absmax`` to at most the peak.

    What remains is its rounded value, so that encoding what was decoded finds the same scale.
    """
    scale = _float(_rounded_up(_by_peak(absmax, grid)))
    return _rounded_up(_by_peak(grid.snap_(absmax / scale).mul_(scale), grid))


def _by_peak(x: Tensor, grid: Grid) -> Tensor:
    """Divide, on every device: a GPU would multiply by the reciprocal of a plain number."""
    return x / torch.full((), grid.peak, device=x.device)


def _rounded_up(scale: Tensor) -> Tensor:
    """Return the code of the next float with three mantissa bits at or above positive floats."""
    codes = (scale.view(torch.int32) + 0xFFFFF).bitwise_right_shift_(20)
    return codes.clamp_(min=_MIN_BASE)


def _float(codes: Tensor) -> Tensor:
    return (codes << 20).view(torch.float32)


def _scales(steps: Tensor, bases: Tensor) -> Tensor:
    """Return float32 [blocks, 1] from int32 steps [tiles, blocks a tile] over bases [tiles, 1]."""
    return _float(steps + bases).view(-1, 1)


def _best_steps(rows: Tensor, steps: Tensor, bases: Tensor, grid: Grid) -> Tensor:
    """Return of each block the better of two steps: where nothing saturates, or one below.

    Three more tries would make the error 1 to 3 % smaller still.
    """
    lower = (steps - 1).clamp_(min=0)
    first, tried = _scales(steps, bases), _scales(lower, bases)
    judge = _predicted if grid.even else _measured
    return torch.where(judge(rows, first, tried, grid).view_as(steps), lower, steps)


def _predicted(rows: Tensor, first: Tensor, tried: Tensor, grid: Grid) -> Tensor:
    """Whether ``tried`` saves more noise than it costs the largest number, which saturates.

    An even grid's noise does not depend on the numbers: a twelfth of its step squared.
    """
    ratio = tried / first
    top = rows.abs().amax(1, keepdim=True).div_(first)
    over = (top - ratio * grid.peak).clamp_(min=0.0).square_()
    rest = (top - grid.peak).clamp_(min=0.0).square_()
    return over + ratio * ratio * NOISE < rest + NOISE


def _measured(rows: Tensor, first: Tensor, tried: Tensor, grid: Grid) -> Tensor:
    """Whether ``tried`` has the smaller squared error."""
    ratio = tried / first
    error = _squared_error(rows, tried, grid).mul_(ratio).mul_(ratio)
    return error < _squared_error(rows, first, grid)


def _squared_error(rows: Tensor, scale: Tensor, grid: Grid) -> Tensor:
    """Return float32 [blocks, 1], in units of the scale."""
    squares = grid.squared_errors(rows * scale.reciprocal())
    return squares.sum(1, keepdim=True, dtype=torch.int32).to(torch.float32)
