"""Numbers between 0 and 1 for stochastic rounding, from a seed and a place: chance is an argument.

The number of a place does not depend on how a vector is cut into chunks, nor on the device: it is
a hash by integer operations (splitmix64, Steele et al. 2014) of seed and place.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

_WORD: Final = 1 << 64
_STEP: Final = 0x9E3779B97F4A7C15
_MIXERS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT: Final = 31
_BITS: Final = 24
"""Of the hash that become the number: what a float32 below 1 holds exactly."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Uniform in [0, 1), one number for each place.

    Example:
        >>> noise = Noise(seed=7)
        >>> bool((noise.at(0, 8)[4:] == noise.at(4, 4)).all())
        True
    """

    seed: int

    def at(self, start: int, count: int, device: torch.device | None = None) -> Tensor:
        """Return float32 [count], the numbers of places ``start`` to ``start + count``."""
        places = torch.arange(start + 1, start + 1 + count, dtype=torch.int64, device=device)
        hashed = places.mul_(_signed(_STEP)).add_(_signed(self.seed % _WORD))
        for shift, factor in _MIXERS:
            hashed.bitwise_xor_(_shifted(hashed, shift)).mul_(_signed(factor))
        hashed.bitwise_xor_(_shifted(hashed, _LAST_SHIFT))
        return _shifted(hashed, 64 - _BITS).to(torch.float32).mul_(2.0**-_BITS)


def _shifted(words: Tensor, by: int) -> Tensor:
    """Shift right as if the 64 bits had no sign."""
    return (words >> by) & ((1 << (64 - by)) - 1)


def _signed(word: int) -> int:
    """Return the 64-bit integer with the bits of ``word``."""
    return word - _WORD if word >= _WORD // 2 else word
