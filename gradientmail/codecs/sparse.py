"""The 64 largest of every 4096 numbers, each as its place and one of four values; the rest is 0.

    | low   64 bytes | low eight bits of the 64 indices, which rise                      |
    | high  32 bytes | their high four bits, two a byte                                  |
    | codes 16 bytes | a sign, and which of the tile's two magnitudes: 2 bits an index   |
    | scales 4 bytes | the two magnitudes, BF16                                          |

Indices and codes take .21875 bits a number, 146.3 times less than float32; the magnitudes another
.0078. What is left out is meant to come later, by error feedback.

A number below the least normal float counts as 0: BF16 could not tell it from others. A tile with
fewer than 64 that are not 0 repeats its last index and code. A reader refuses indices that fall,
and one index under two codes; so order and repetition carry no meaning, and an index cannot lie
outside of its tile. Encoding what was decoded gives the same bytes.

Source: SparseLoCo (arXiv 2508.15706): top-k by chunks, 2-bit values, 12-bit indices.
"""

from typing import Final

import torch
from torch import Tensor

from gradientmail.codecs.coarse import halved_sum, packed, unpacked
from gradientmail.codecs.layout import TILE
from gradientmail.errors import PayloadError

KEPT: Final = 64
"""Numbers of a tile that are sent."""

LEAST: Final = 0x00800000
"""Bits of the least magnitude that is sent: the least normal float."""

REFINEMENTS: Final = 2
"""Turns of Lloyd's algorithm on the two magnitudes."""


class TopK:
    """SPARSE: see the module."""

    def encode(self, x: Tensor) -> dict[str, Tensor]:
        """Return the entries of flat float32 ``x``, whole tiles."""
        rows = x.view(-1, TILE)
        indices, count = _largest(rows)
        values = rows.gather(1, indices).mul_(count > 0)
        magnitudes = values.abs()
        used = torch.arange(KEPT, device=x.device) < count
        scales, large = _two_magnitudes(magnitudes, used)
        codes = (values < 0).to(torch.uint8) | large.to(torch.uint8) << 1
        flat = indices.view(-1)
        return {
            "scales": scales.view(-1),
            "low": (flat & 0xFF).to(torch.uint8),
            "high": packed((flat >> 8).to(torch.uint8), 4),
            "codes": packed(codes.view(-1), 2),
        }

    def decode(self, chunk: dict[str, Tensor], out: Tensor) -> Tensor:
        """Fill flat float32 ``out`` with what the entries stand for.

        Raises:
            PayloadError: indices of a tile fall, or one of them has two codes.
        """
        high = unpacked(chunk["high"], 4).to(torch.int64)
        indices = (chunk["low"].to(torch.int64) | high << 8).view(-1, KEPT)
        codes = unpacked(chunk["codes"], 2).view(-1, KEPT)
        _require_order(indices, codes)
        scales = chunk["scales"].to(torch.float32).view(-1, 2)
        magnitudes = scales.gather(1, (codes >> 1).to(torch.int64))
        values = magnitudes * (1.0 - 2.0 * (codes & 1).to(torch.float32))
        return out.zero_().view(-1, TILE).scatter_(1, indices, values).view(-1)


def _largest(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rising int64 indices [tiles, 64] of the largest, and [tiles, 1] how many count.

    Of equal magnitudes the first are taken, on every device: magnitude and index are one number.
    """
    bits = (rows.view(torch.int32) & 0x7FFFFFFF).to(torch.int64)
    places = torch.arange(TILE, device=rows.device)
    keys = (bits << 12 | (TILE - 1 - places)).topk(KEPT, 1, sorted=False).values
    indices = TILE - 1 - (keys & TILE - 1)
    zero = keys < LEAST << 12
    count = KEPT - zero.sum(1, keepdim=True)
    indices = indices.masked_fill_(zero, TILE).sort(1).values
    last = indices.gather(1, (count - 1).clamp_(min=0))
    return torch.minimum(indices, last).clamp_(max=TILE - 1).mul_(count > 0), count


def _two_magnitudes(magnitudes: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Return BF16 [tiles, 2] that stand for the smaller and the larger, and which are large.

    Where one class is empty, or both come to the same, none is large: what was decoded would be
    told apart by rounding alone, and encode to other bytes.
    """
    large = magnitudes > _mean(magnitudes, used)
    means = _means(magnitudes, used, large)
    for _ in range(REFINEMENTS):
        large = magnitudes > halved_sum(means) * 0.5
        means = _means(magnitudes, used, large)
    scales = means.to(torch.bfloat16)
    return scales, large & (scales[:, 1:] > scales[:, :1])


def _means(magnitudes: Tensor, used: Tensor, large: Tensor) -> Tensor:
    """Return [tiles, 2] the means of the small and the large; of an empty class, the other's."""
    small_mean, large_mean = _mean(magnitudes, used & ~large), _mean(magnitudes, used & large)
    return torch.cat(
        [
            torch.where(small_mean > 0, small_mean, large_mean),
            torch.where(large_mean > 0, large_mean, small_mean),
        ],
        1,
    )


def _mean(magnitudes: Tensor, chosen: Tensor) -> Tensor:
    """Return [tiles, 1] the mean of those chosen; 0 where there are none."""
    count = halved_sum(chosen.to(torch.float32)).clamp_(min=1.0)
    return halved_sum(magnitudes * chosen) / count


def _require_order(indices: Tensor, codes: Tensor) -> None:
    rise = indices[:, 1:] - indices[:, :-1]
    if bool((rise < 0).any()):
        raise PayloadError("the indices of a tile do not rise")
    if bool(((rise == 0) & (codes[:, 1:] != codes[:, :-1])).any()):
        raise PayloadError("one index of a tile has two values")
