"""Compiled kernels where there are some: the same bits as torch gives, several times as fast.

numba compiles them on their first call, for half a minute, and keeps them on disk. So nothing uses
them before ``warm_up`` is done, which a process calls beside its work. Without numba, on another
device, or where a kernel finds something wrong, torch does the work and says what is wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Self

import numpy as np
import torch
from torch import Tensor

from gradientmail.codecs.coarse import Signs, Ternary
from gradientmail.codecs.grids import F4_LEVELS, NF4_LEVELS, grid_of
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
    Precision.I8: (0, 64, 1),
    Precision.F8_E4M3: (2, 64, 1),
    Precision.I4: (0, 32, 2),
    Precision.NF4: (3, 32, 2),
    Precision.F4: (1, 32, 2),
}
"""See ``rounding.Form``."""

_FLOATS: Final = {Precision.F32: 0, Precision.F16: 1, Precision.BF16: 2}
"""See ``decoding.F32``."""

COARSE: Final[Mapping[Precision, Ternary | Signs]] = {
    Precision.I2: Ternary(),
    Precision.SIGN: Signs(),
}

_LEVELS: Final = {Precision.NF4: NF4_LEVELS, Precision.F4: F4_LEVELS}
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


@dataclass(frozen=True)
class Room:
    """Entries to be filled, and as arrays: making these takes as long as encoding four tiles."""

    entries: dict[str, Tensor]
    arrays: tuple[Array, ...]

    @classmethod
    def to_encode(cls, numel: int, precision: Precision) -> Self:
        """Make room for ``numel`` numbers."""
        entries = empty_entries(numel, precision)
        return cls(entries, tuple(as_array(items) for items in entries.values()))


def encode(x: Tensor, precision: Precision, room: Room) -> bool:
    """See ``blocks.encode_chunk``, of flat float32; False: not finite, or above the limit."""
    flat = x.detach().contiguous().numpy()
    if precision is Precision.SPARSE:
        return not _kernels.picking.encode_tiles(flat, _LIMITS[0], room.arrays)
    return not _kernels.encoding.encode_tiles(flat, _grid(precision), _LIMITS, room.arrays)


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


def tile_sums(blocks: Tensor) -> Tensor | None:
    """See ``reduce.tile_sums``: float64 [tiles]; None: no kernels."""
    on_host = blocks.device.type == "cpu" and blocks.is_contiguous()
    if _kernels.reason or not on_host or blocks.dtype is not torch.float64:
        return None
    out = torch.empty(blocks.numel() // (TILE // ALIGN), dtype=torch.float64)
    _kernels.decoding.tile_sums(*_arrays((blocks.view(-1), out)))
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
    if precision in _FLOATS:
        rows = entries[0].view(np.uint8)
        return not _kernels.decoding.combine_floats(_FLOATS[precision], rows, *numbers)
    if precision in COARSE:
        return not _kernels.decoding.combine_coarse(_table(precision), entries, *numbers)
    if precision is Precision.SPARSE:
        combine_tiles = _kernels.picking.combine_tiles
        finite = bool(np.isfinite(factors).all())  # else zeros, which it skips, would make NaN
        return finite and not combine_tiles(_LIMITS[0], entries, *numbers)
    form, pairs = _FORMS[precision], _pairs(precision)
    return not _kernels.decoding.combine_tiles(form, pairs, entries, *numbers)


def room_for(blocks: int) -> Sums:
    """Return room for sums, of which the squares are zero until they are filled."""
    squares = torch.zeros(2, blocks, dtype=torch.float64)
    return torch.empty(blocks * ALIGN), squares[0], squares[1]


def _arrays(tensors: Sequence[Tensor]) -> tuple[Array, ...]:
    return tuple(tensor.detach().numpy() for tensor in tensors)


def as_array(items: Tensor) -> Array:
    """View a flat entry on the CPU as what kernels take: int16 or bytes."""
    if items.dtype is torch.bfloat16:  # which numpy does not know
        items = items.view(torch.int16)
    array = items.numpy()
    return array if array.itemsize == 2 else array.view(np.uint8)


@cache
def _grid(precision: Precision) -> tuple[Any, np.float32]:
    """Return a ``rounding.Grid``."""
    return _FORMS[precision], np.float32(grid_of(precision, torch.device("cpu")).peak)


@cache
def _pairs(precision: Precision) -> Array:
    """Return int64 [256]: the two float32 that a byte of NF4 or F4 stands for."""
    values = torch.tensor(_LEVELS.get(precision, NF4_LEVELS))
    pairs = torch.stack((values.repeat(16), values.repeat_interleave(16)), dim=1)
    return pairs.view(torch.int64).view(-1).numpy()


@cache
def _table(precision: Precision) -> Array:
    """Return int64 [256, 2 or 4]: the float32 that a byte of I2 or SIGN stands for, unscaled."""
    numbers = 256 * precision.entries[-1].per
    entries = {
        "scales": torch.ones(numbers // ALIGN, dtype=torch.bfloat16),
        "codes": torch.arange(256, dtype=torch.uint8),
    }
    values = COARSE[precision].decode(entries, torch.empty(numbers))
    return values.view(torch.int64).view(256, -1).numpy()


def _call_all(encoding: Module, decoding: Module) -> None:
    """Call each kernel once with the types that it will be called with."""
    x, sums = np.zeros(TILE, np.float32), _arrays(room_for(TILE // ALIGN))
    slots, factors = np.zeros(TILE // ALIGN, np.int32), np.zeros((2, 1, 1), np.float32)
    form, pairs = _FORMS[Precision.I8], _pairs(Precision.I8)
    entries = np.full(1, 64, np.int16), np.zeros(TILE // 64, np.uint8), np.zeros(TILE, np.uint8)
    stored = tuple(entry[None] for entry in entries)
    encoding.encode_tiles(x, _grid(Precision.I8), _LIMITS, entries)
    decoding.decode_tiles(form, pairs, stored, x)
    decoding.combine_tiles(form, pairs, stored, factors, slots, sums)
    decoding.combine_floats(0, x[None].view(np.uint8), factors, slots, sums)
    coarse = np.zeros((1, TILE // ALIGN), np.int16), np.zeros((1, TILE // 4), np.uint8)
    decoding.combine_coarse(_table(Precision.I2), coarse, factors, slots, sums)
    decoding.block_squares(x, sums[1])
    decoding.tile_products(x, x, sums[1][:1])
    decoding.tile_sums(sums[1], sums[2][:1])
    decoding.momentum_step(x, x, x, np.zeros(2, np.float32), (x, x))
    decoding.highest(x.view(np.int32))


def _call_sparse(picking: Module) -> None:
    """As ``_call_all``."""
    x, entries = np.zeros(TILE, np.float32), Room.to_encode(TILE, Precision.SPARSE).arrays
    slots, factors = np.zeros(TILE // ALIGN, np.int32), np.zeros((2, 1, 1), np.float32)
    picking.encode_tiles(x, _LIMITS[0], entries)
    stored, sums = tuple(entry[None] for entry in entries), _arrays(room_for(TILE // ALIGN))
    picking.decode_tiles(_LIMITS[0], stored, x)
    picking.combine_tiles(_LIMITS[0], stored, factors, slots, sums)
