import pytest
import torch

from gradientmail.codecs import Precision
from gradientmail.codecs.grids import grid_of
from gradientmail.errors import NonFiniteError

CPU = torch.device("cpu")
QUANTIZED = [p for p in Precision if p.block]
NF4 = [  # QLoRA, arXiv 2305.14314, appendix E
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]


def values_of(precision):
    """Every value of a grid, rising, as its decoder knows them."""
    if precision is Precision.I8:
        return torch.arange(-127.0, 128.0)
    if precision is Precision.F8_E4M3:
        codes = torch.arange(256, dtype=torch.uint8)
        values = codes.view(torch.float8_e4m3fn).float()
        return values[values.isfinite()].unique()
    codes = torch.arange(16, dtype=torch.uint8)
    values = grid_of(precision, CPU).decode(codes)[::2].unique()
    return values[values != -8]  # I4's sixteenth code, which no encoder writes


def test_the_four_bit_formats_have_the_published_levels():
    assert values_of(Precision.I4).tolist() == list(range(-7, 8))
    half = [0.5, 1, 1.5, 2, 3, 4, 6]
    assert values_of(Precision.F4).tolist() == [-v for v in reversed(half)] + [0, *half]
    assert values_of(Precision.NF4).tolist() == pytest.approx(NF4, abs=1e-7)


@pytest.mark.parametrize("precision", QUANTIZED)
def test_a_number_goes_to_the_nearest_value(precision):
    grid = grid_of(precision, CPU)
    values = values_of(precision)
    x = torch.linspace(-1.2 * grid.peak, 1.2 * grid.peak, 100_001)
    nearest = (x[:, None] - values).abs().amin(1)
    slack = 0.5 / 2048 if precision is Precision.NF4 else 0.0
    assert ((grid.snap_(x.clone()) - x).abs() <= nearest + 2 * slack).all()
    assert grid.peak == values[-1]


@pytest.mark.parametrize("precision", QUANTIZED)
def test_snapped_numbers_survive_their_codes(precision):
    grid = grid_of(precision, CPU)
    values = values_of(precision)
    values = torch.cat((values, values.flip(0)))  # an even number of them
    assert torch.equal(grid.snap_(values.clone()), values)
    assert torch.equal(grid.decode(grid.encode(values)), values)


def test_e4m3_is_torchs_own_in_rounding_codes_and_values():
    grid = grid_of(Precision.F8_E4M3, CPU)
    x = torch.cat((torch.linspace(-448, 448, 300_001), torch.linspace(-0.05, 0.05, 300_001)))
    theirs = x.to(torch.float8_e4m3fn)
    snapped = grid.snap_(x.clone())
    assert torch.equal(snapped, theirs.float())
    apart_from_the_sign_of_zero = (snapped != 0) | (theirs.view(torch.uint8) == 0)
    same = grid.encode(snapped) == theirs.view(torch.uint8)
    assert same[apart_from_the_sign_of_zero].all()


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_the_nan_codes_of_e4m3_are_refused(code):
    codes = torch.zeros(64, dtype=torch.uint8)
    codes[5] = code
    with pytest.raises(NonFiniteError, match="F8_E4M3 is NaN"):
        grid_of(Precision.F8_E4M3, CPU).decode(codes)


def test_ties_go_to_the_even_neighbour():
    ties = torch.tensor([0.25, 0.75, 2.5, 3.5, -5.0])
    assert grid_of(Precision.F4, CPU).snap_(ties).tolist() == [0, 1, 2, 4, -4]
    assert grid_of(Precision.I8, CPU).snap_(torch.tensor([0.5, 1.5, -2.5])).tolist() == [0, 2, -2]


def test_the_first_of_two_nibbles_is_the_low_one():
    grid = grid_of(Precision.I4, CPU)
    assert grid.encode(torch.tensor([1.0, -1.0, 7.0, -7.0])).tolist() == [0xF1, 0x97]
    assert grid.decode(torch.tensor([0xF1, 0x97], dtype=torch.uint8)).tolist() == [1, -1, 7, -7]
