"""Two bits and one bit a number: each block of 64 keeps one magnitude, and each number its sign.

    I2    0, s, -s      2 bits and a BF16 scale a block: 2.25 bits a number
    SIGN  s, -s         1 bit and a BF16 scale a block: 1.25 bits a number

They lose most of what they are given, so they are for contributions with error feedback (1-bit
SGD, Seide et al. 2014; scaled sign with feedback, Karimireddy et al., arXiv 1901.09847). Every
step is one IEEE float32 operation or one integer operation per element, and sums go by halves, so
that all devices give the same bits. Encoding what was decoded gives the same bytes; so where a
scale is below the least of BF16, no code says a sign.
"""

from typing import Any, Final

import torch
from torch import Tensor

BLOCK: Final = 64
REFINEMENTS: Final = 3
"""Turns of Lloyd's algorithm for I2: more do not change the error of Gaussian numbers."""

SMALL: Final = 1 << 15
"""Numbers up to which torch uses one thread."""


class Ternary:
    """I2: a number is 0, or its block's scale with a sign; code 2, never written, reads as 0."""

    def encode(self, x: Tensor) -> dict[str, Tensor]:
        """Return the entries of flat float32 ``x``: scale and threshold by Lloyd's algorithm."""
        rows = x.view(-1, BLOCK)
        magnitudes = rows.abs()
        threshold = halved_sum(magnitudes) * (0.75 / BLOCK)
        scales = threshold.to(torch.bfloat16)
        for _ in range(REFINEMENTS):
            kept = magnitudes > threshold
            count = halved_sum(kept.to(torch.float32)).clamp_(min=1.0)
            scales = (halved_sum(magnitudes * kept) / count).to(torch.bfloat16)
            threshold = scales.to(torch.float32) * 0.5
        kept = (magnitudes > threshold) & (scales > 0)
        codes = kept.to(torch.uint8) | (kept & (rows < 0)).to(torch.uint8) << 1
        return {"scales": scales.view(-1), "codes": packed(codes.view(-1), 2)}

    def decode(self, chunk: dict[str, Tensor], out: Tensor) -> Tensor:
        """Fill flat float32 ``out`` with what the entries stand for."""
        codes = unpacked(chunk["codes"], 2)
        signed = (codes & 1).to(torch.float32) * (1.0 - 2.0 * (codes >> 1).to(torch.float32))
        scales = chunk["scales"].to(torch.float32).view(-1, 1)
        return torch.mul(signed.view(-1, BLOCK), scales, out=out.view(-1, BLOCK)).view(-1)


class Signs:
    """SIGN: a number is plus or minus its block's mean magnitude; zero counts as plus."""

    def encode(self, x: Tensor) -> dict[str, Tensor]:
        """Return the entries of flat float32 ``x``."""
        rows = x.view(-1, BLOCK)
        scales = (halved_sum(rows.abs()) * (1.0 / BLOCK)).to(torch.bfloat16)
        negative = (rows < 0) & (scales > 0)
        return {"scales": scales.view(-1), "codes": packed(negative.view(-1).to(torch.uint8), 1)}

    def decode(self, chunk: dict[str, Tensor], out: Tensor) -> Tensor:
        """Fill flat float32 ``out`` with what the entries stand for."""
        signs = 1.0 - 2.0 * unpacked(chunk["codes"], 1).to(torch.float32)
        scales = chunk["scales"].to(torch.float32).view(-1, 1)
        return torch.mul(signs.view(-1, BLOCK), scales, out=out.view(-1, BLOCK)).view(-1)


def packed(codes: Tensor, bits: int) -> Tensor:
    """Return flat uint8 codes of ``bits`` bits (1, 2 or 4), the first in a byte's lowest bits.

    >>> packed(torch.tensor([1, 2, 3, 0], dtype=torch.uint8), 2)
    tensor([57], dtype=torch.uint8)
    """
    while bits < 8:
        codes = codes[0::2] | codes[1::2] << bits
        bits *= 2
    return codes


def unpacked(codes: Tensor, bits: int) -> Tensor:
    """Undo ``packed``."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=codes.device)
    return (codes.unsqueeze(1) >> shifts & (1 << bits) - 1).view(-1)


def halved_sum(rows: Tensor) -> Tensor:
    """Return [rows, 1]: the sums of rows, in one order on every device."""
    sums = nimble(rows)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    return torch.as_tensor(sums)


def nimble(x: Tensor) -> Any:  # noqa: ANN401 - what numpy and torch both can do
    """Return ``x`` as an array where it is small and on the CPU: numpy's calls cost a tenth."""
    return x.detach().numpy() if x.numel() <= SMALL and x.device.type == "cpu" else x
