"""Compiled kernels where there are some: the same bits as torch gives, several times as fast.

numba compiles them on their first call, for half a minute, and keeps them on disk. So nothing uses
them before ``warm_up`` is done, which a process calls beside its work. Without numba, on another
device, or where a kernel finds something wrong, torch does the work and says what is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from gradientmail.codecs.grids import F4_LEVELS, I4_LEVELS, NF4_LEVELS, grid_of, level_tables
from gradientmail.codecs.layout import ALIGN, TILE
from gradientmail.codecs.precision import Precision

Array = Any
"""A numpy array."""

Module = Any
"""A module of kernels, which type checkers see undecorated."""

DTYPES: Final = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}
"""Of the items of entries, by their names in safetensors."""

_FORMS: Final = {
    Precision.I8: (0, 64, 1, 0, 0, 0),
    Precision.F8_E4M3: (1, 64, 1, 3, 7, 0x80),
    Precision.I4: (0, 32, 2, 0, 0, 0),
    Precision.NF4: (2, 32, 2, 0, 0, 0),
    Precision.F4: (1, 32, 2, 1, 1, 8),
}
"""See ``encoding.Form``."""

_LEVELS: Final = {
    Precision.I4: I4_LEVELS,
    Precision.NF4: NF4_LEVELS,
    Precision.F4: F4_LEVELS,
}
_LIMITS: Final = np.array([(127 + 100) << 23, 64], np.int32)
"""Bits of ``blocks.LIMIT``, and the least scale code."""


WORTHWHILE: Final = 1 << 20
"""Numbers in a fragment from which on kernels save more than it takes to load them."""


class _Kernels:
    """The compiled modules, once they are, and why they are not."""

    encoding: Module = None
    decoding: Module = None
    picking: Module = None
    reason: str = "not compiled yet"


_kernels: Final = _Kernels()


def warm_up() -> bool:
    """Load or compile all kernels, so that they are used from now on; return whether they are.

    Takes seconds with a warm disk cache, half a minute without. Run it beside the work.
    """
    if not _kernels.reason:
        return True
    try:
        # Not at the top: importing numba takes a second and 80 MB, and it may be missing.
        from gradientmail.codecs import decoding, encoding, picking  # noqa: PLC0415

        _call_all(encoding, decoding)
        _call_sparse(picking)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with numba here: torch can do it
        _kernels.reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return False
    _kernels.encoding, _kernels.decoding, _kernels.picking = encoding, decoding, picking
    _kernels.reason = ""
    return True


def why_not() -> str:
    """Return why kernels are not in use; empty when they are."""
    return _kernels.reason


def warm_up_for(numel: int, log: Callable[..., None]) -> None:
    """Warm up if fragments are so large that it pays; ``log`` is told why not, if it fails."""
    if numel >= WORTHWHILE and not warm_up():
        log("torch codes without compiled kernels: %s", why_not())


def serves(precision: Precision, device: torch.device) -> bool:
    """Whether kernels can code this."""
    coded = precision in _FORMS or precision is Precision.SPARSE
    return not _kernels.reason and coded and device.type == "cpu"


def encode(
    x: Tensor, precision: Precision, room: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor] | None:
    """See ``blocks.encode_chunk``, of flat float32; None: not finite, or above the limit."""
    if room is None:
        room = empty_entries(len(x), precision)
    flat = x.detach().contiguous().numpy()
    arrays = tuple(as_array(room[entry.name]) for entry in precision.entries)
    if precision is Precision.SPARSE:
        refused = _kernels.picking.encode_tiles(flat, _LIMITS[0], arrays)
    else:
        peak = np.float32(grid_of(precision, x.device).peak)
        grid = _FORMS[precision], peak, _marks(precision)
        refused = _kernels.encoding.encode_tiles(flat, grid, _LIMITS, arrays)
    return None if refused else dict(room)


def empty_entries(numel: int, precision: Precision) -> dict[str, Tensor]:
    """Return room for the entries of ``numel`` numbers."""
    return {
        entry.name: torch.empty(numel // entry.per, dtype=DTYPES[entry.dtype])
        for entry in precision.entries
    }


def decode(chunk: Mapping[str, Tensor], precision: Precision, out: Tensor) -> bool:
    """See ``blocks.decode_chunk``; False: it is not valid, and ``out`` holds nothing of use."""
    stored = tuple(as_array(chunk[entry.name])[None] for entry in precision.entries)
    if precision is Precision.SPARSE:
        return not _kernels.picking.decode_tiles(_LIMITS[0], stored, out.numpy())
    form, pairs = _FORMS[precision], _pairs(precision)
    return not _kernels.decoding.decode_tiles(form, pairs, stored, out.numpy())


def highest(x: Tensor) -> float | None:
    """Return the largest magnitude in flat float32, NaN above infinity; None: no kernels."""
    if not _takes(x):
        return None
    bits = np.int32(_kernels.decoding.highest(x.detach().numpy().view(np.int32)))
    return float(bits.view(np.float32))


def block_squares(x: Tensor) -> Tensor | None:
    """See ``reduce.block_squares``; None: no kernels."""
    if not _takes(x):
        return None
    out = torch.empty(x.numel() // ALIGN, dtype=torch.float64)
    _kernels.decoding.block_squares(x.detach().numpy(), out.numpy())
    return out


def tile_products(a: Tensor, b: Tensor) -> Tensor | None:
    """See ``reduce.tile_products``: float64 [tiles]; None: no kernels."""
    if not _takes(a, b):
        return None
    out = torch.empty(a.numel() // TILE, dtype=torch.float64)
    _kernels.decoding.tile_products(*_arrays((a, b)), out.numpy())
    return out


def nesterov(
    theta: Tensor, gradient: Tensor, momentum: Tensor, kept: float, rate: float
) -> tuple[Tensor, Tensor] | None:
    """See ``outer.sgd.Nesterov``: flat theta and momentum after a step; None: no kernels."""
    if not _takes(theta, gradient, momentum):
        return None
    out = torch.empty_like(theta), torch.empty_like(theta)
    factors = np.array([kept, rate], np.float32)
    given = _arrays((theta, gradient, momentum))
    _kernels.decoding.momentum_step(*given, factors, _arrays(out))
    return out


def _takes(*tensors: Tensor) -> bool:
    return not _kernels.reason and all(
        x.dtype is torch.float32 and x.device.type == "cpu" and x.is_contiguous() and x.ndim == 1
        for x in tensors
    )


Sums = tuple[Tensor, Tensor, Tensor]
"""float32 [elements]; float64 [blocks], its squares; the same of a second sum."""


def combine(
    stored: Sequence[Array], precision: Precision, factors: Array, slots: Array, sums: Sums
) -> bool:
    """Decode and add N contributions; False: one of them is not valid, or must be torch's.

    Args:
        stored: Entries in their order, each [N, items]; see ``as_array``.
        precision: That they have.
        factors: float32 [1 or 2, N, tensors]: what each sum multiplies by.
        slots: int32, the tensor of each block.
        sums: To fill.
    """
    entries, numbers = tuple(stored), (factors, slots, _arrays(sums))
    if precision is Precision.SPARSE:
        combine_tiles = _kernels.picking.combine_tiles
        finite = bool(np.isfinite(factors).all())  # else zeros, which it skips, would make NaN
        return finite and not combine_tiles(_LIMITS[0], entries, *numbers)
    form, pairs = _FORMS[precision], _pairs(precision)
    return not _kernels.decoding.combine_tiles(form, pairs, entries, *numbers)


def combine_rows(rows: Array, factors: Array, slots: Array, sums: Sums) -> None:
    """Add N decoded contributions, float32 [N, elements]; else as ``combine``."""
    _kernels.decoding.combine_rows(rows, factors, slots, _arrays(sums))


def room_for(blocks: int) -> Sums:
    """Return room for sums, of which the squares are zero until they are filled."""
    squares = torch.zeros(2, blocks, dtype=torch.float64)
    return torch.empty(blocks * ALIGN), squares[0], squares[1]


def _arrays(tensors: Sequence[Tensor]) -> tuple[Array, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


def as_array(items: Tensor) -> Array:
    """View a flat entry on the CPU as what kernels take: int16 or bytes."""
    return items.view(torch.int16 if items.itemsize == 2 else torch.uint8).numpy()


@cache
def _marks(precision: Precision) -> Array:
    """Return what ``encoding.encode_tiles`` knows of levels."""
    if precision is not Precision.NF4:
        return np.zeros(16, np.int32)
    codes, _, squares = level_tables(NF4_LEVELS, torch.device("cpu"))
    levels = torch.tensor(NF4_LEVELS).view(torch.int32)
    return torch.cat((squares * 16 + codes.to(torch.int32), levels)).numpy()


@cache
def _pairs(precision: Precision) -> Array:
    """Return int64 [256]: the two float32 that a byte of four-bit codes stands for."""
    values = torch.tensor(_LEVELS.get(precision, I4_LEVELS))
    pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=1)
    return pairs.view(torch.int64).view(-1).numpy()


def _call_all(encoding: Module, decoding: Module) -> None:
    """Call each kernel once with the types that it will be called with."""
    x, sums = np.zeros(TILE, np.float32), _arrays(room_for(TILE // ALIGN))
    slots, factors = np.zeros(TILE // ALIGN, np.int32), np.zeros((2, 1, 1), np.float32)
    form, pairs = _FORMS[Precision.I8], _pairs(Precision.I8)
    entries = np.full(1, 64, np.int16), np.zeros(TILE // 64, np.uint8), np.zeros(TILE, np.uint8)
    stored = tuple(entry[None] for entry in entries)
    grid = form, np.float32(127), _marks(Precision.I8)
    encoding.encode_tiles(x, grid, _LIMITS, entries)
    decoding.decode_tiles(form, pairs, stored, x)
    decoding.combine_tiles(form, pairs, stored, factors, slots, sums)
    decoding.combine_rows(x[None], factors, slots, sums)
    decoding.block_squares(x, sums[1])
    decoding.tile_products(x, x, sums[1])
    decoding.momentum_step(x, x, x, np.zeros(2, np.float32), (x, x))
    decoding.highest(x.view(np.int32))


def _call_sparse(picking: Module) -> None:
    """As ``_call_all``."""
    room, x = empty_entries(TILE, Precision.SPARSE), np.zeros(TILE, np.float32)
    entries = tuple(as_array(items) for items in room.values())
    slots, factors = np.zeros(TILE // ALIGN, np.int32), np.zeros((2, 1, 1), np.float32)
    picking.encode_tiles(x, _LIMITS[0], entries)
    stored, sums = tuple(entry[None] for entry in entries), _arrays(room_for(TILE // ALIGN))
    picking.decode_tiles(_LIMITS[0], stored, x)
    picking.combine_tiles(_LIMITS[0], stored, factors, slots, sums)
