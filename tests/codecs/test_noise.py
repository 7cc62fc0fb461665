import pytest
import torch

from gradientmail.codecs import (
    TILE,
    BufferTarget,
    PayloadFormat,
    PayloadWriter,
    Precision,
    decode_chunk,
    encode_chunk,
)
from gradientmail.codecs.noise import Noise


def test_the_numbers_are_those_of_splitmix64_however_they_are_cut():
    whole = Noise(seed=3).at(0, 1000)
    assert torch.equal(whole[700:], Noise(seed=3).at(700, 300))
    assert whole[:3].tolist() == [0.11345028877258301, 0.7002934813499451, 0.6129746437072754]


def test_numbers_are_uniform_and_seeds_are_unlike():
    drawn = Noise(seed=2**127 + 5).at(0, 1 << 16)
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert drawn.mean().item() == pytest.approx(0.5, abs=0.005)
    assert drawn.var().item() == pytest.approx(1 / 12, abs=0.002)
    other = Noise(seed=6).at(0, 1 << 16)
    assert abs(torch.corrcoef(torch.stack([drawn, other]))[0, 1]) < 0.02
    assert abs(torch.corrcoef(torch.stack([drawn[1:], drawn[:-1]]))[0, 1]) < 0.02


@pytest.mark.parametrize("precision", [Precision.I8, Precision.I4])
def test_the_mean_of_stochastic_rounding_is_what_was_sent(precision):
    x = torch.randn(TILE, generator=torch.Generator().manual_seed(0))
    mean, rounds = torch.zeros(TILE), 400
    for seed in range(rounds):
        mean += decode_chunk(encode_chunk(x, precision, Noise(seed).at(0, TILE)), precision)
    nearest = decode_chunk(encode_chunk(x, precision), precision)
    off = (mean / rounds - x).norm()
    assert off < 0.15 * (nearest - x).norm(), "the error falls with the root of the rounds"


@pytest.mark.parametrize("precision", [Precision.I8, Precision.I4])
def test_stochastic_rounding_leaves_what_is_on_the_grid(precision):
    on_grid = decode_chunk(encode_chunk(torch.zeros(TILE), precision), precision)
    on_grid[::3] = 2.0
    sent = encode_chunk(on_grid, precision, Noise(1).at(0, TILE))
    assert (decode_chunk(sent, precision)[1::3] == 0.0).all()


def test_a_payload_is_the_same_however_it_is_cut():
    x = torch.randn(3 * TILE, generator=torch.Generator().manual_seed(1))
    payload_format = PayloadFormat(3 * TILE, {"data": Precision.I8})
    whole, cut = BufferTarget(), BufferTarget()
    PayloadWriter(payload_format, whole, noise=Noise(9)).write("data", 0, x)
    writer = PayloadWriter(payload_format, cut, noise=Noise(9))
    for start in (2 * TILE, 0, TILE):
        writer.write("data", start, x[start : start + TILE])
    assert whole.data == cut.data
