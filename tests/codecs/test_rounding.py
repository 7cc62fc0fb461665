"""Kernels that find levels by comparisons agree with the tables that torch reads."""

import numpy as np
import torch

from gradientmail.codecs import rounding
from gradientmail.codecs.grids import NF4_LEVELS, level_tables

CODES, _, SQUARES = level_tables(NF4_LEVELS, torch.device("cpu"))
CELLS = np.arange(-(len(CODES) // 2), len(CODES) // 2 + 1, dtype=np.int16)


def test_every_cell_has_the_level_of_the_table():
    found = np.empty(len(CELLS), np.uint8)
    rounding.levels_of(CELLS, found)
    assert found.tolist() == CODES.tolist()


def test_every_cell_has_the_error_of_the_table():
    found = np.empty(len(CELLS), np.int16)
    rounding.distances_of(CELLS, found)
    assert (found.astype(int) ** 2).tolist() == SQUARES.tolist()


def test_every_minifloat_has_its_own_code():
    """Both kinds, from their codes to their values and back."""
    for mantissa, bias, sign, peak in ((1, 1, 8, 6.0), (3, 7, 128, 448.0)):
        for code in range(2 * sign):
            exponent, places = (code % sign) >> mantissa, code % (1 << mantissa)
            whole = (1 << mantissa) * (exponent > 0) + places
            value = whole * 2.0 ** (max(exponent, 1) - bias - mantissa)
            if 0.0 < value <= peak:
                signed = np.float32(-value if code & sign else value)
                assert (
                    rounding.minifloat_code(signed, np.float32(peak), mantissa, bias, sign) == code
                )
