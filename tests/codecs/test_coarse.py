import pytest
import torch

from gradientmail.codecs import TILE, Precision, decode_chunk, encode_chunk
from gradientmail.codecs.coarse import packed, unpacked
from gradientmail.errors import NonFiniteError, PayloadError

COARSE = [Precision.I2, Precision.SIGN]


def normal(seed, numel=4 * TILE):
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def round_trip(x, precision):
    return decode_chunk(encode_chunk(x, precision), precision)


def test_i2_takes_two_bits_and_a_quarter_and_sign_one_and_a_quarter():
    assert Precision.I2.bytes_per_parameter * 8 == 2.25
    assert Precision.SIGN.bytes_per_parameter * 8 == 1.25


def test_i2_keeps_zero_and_the_two_signs_of_one_magnitude():
    x = torch.zeros(TILE)
    x[:4] = torch.tensor([4.0, -4.0, 0.5, -0.25])
    assert round_trip(x, Precision.I2)[:5].tolist() == [4.0, -4.0, 0.0, 0.0, 0.0]


def test_sign_sends_the_mean_magnitude_of_a_block():
    x = torch.ones(TILE)
    x[:64] = torch.tensor([3.0, -1.0]).repeat(32)
    found = round_trip(x, Precision.SIGN)
    assert found[:4].tolist() == [2.0, -2.0, 2.0, -2.0]
    assert found[64:].tolist() == [1.0] * (TILE - 64)


@pytest.mark.parametrize(("precision", "error"), [(Precision.I2, 0.425), (Precision.SIGN, 0.6)])
def test_the_error_of_gaussian_numbers_is_that_of_the_best_levels(precision, error):
    """Lloyd and Max: .436 with three levels, .603 with two; a block of 64 is a little better."""
    x = normal(0, 1 << 18)
    found = ((round_trip(x, precision) - x).norm() / x.norm()).item()
    assert found == pytest.approx(error, rel=0.02)


@pytest.mark.parametrize("precision", COARSE)
def test_encoding_what_was_decoded_gives_the_same_bytes(precision):
    once = encode_chunk(normal(1), precision)
    again = encode_chunk(decode_chunk(once, precision), precision)
    assert all(torch.equal(again[name], items) for name, items in once.items())


@pytest.mark.parametrize("precision", [*COARSE, Precision.SPARSE])
@pytest.mark.parametrize("exponent", [-149, -140, -134, -130, -126])
def test_magnitudes_that_bf16_cannot_hold_encode_again_to_the_same_bytes(precision, exponent):
    once = encode_chunk(normal(5) * 2.0**exponent, precision)
    again = encode_chunk(decode_chunk(once, precision), precision)
    assert all(torch.equal(again[name], items) for name, items in once.items())


@pytest.mark.parametrize("precision", COARSE)
@pytest.mark.parametrize(
    ("value", "error"), [(-1.0, PayloadError), (float("nan"), NonFiniteError)]
)
def test_a_scale_no_encoder_writes_is_refused(precision, value, error):
    chunk = encode_chunk(normal(2), precision)
    chunk["scales"][5] = value
    with pytest.raises(error):
        decode_chunk(chunk, precision)


def test_the_code_no_encoder_writes_reads_as_zero():
    chunk = encode_chunk(normal(3), Precision.I2)
    chunk["codes"].fill_(0b10101010)
    assert decode_chunk(chunk, Precision.I2).count_nonzero() == 0


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_codes_come_out_of_their_bytes_as_they_went_in(bits):
    codes = torch.arange(64, dtype=torch.uint8) % (1 << bits)
    assert packed(codes, bits).numel() == 64 * bits // 8
    assert torch.equal(unpacked(packed(codes, bits), bits), codes)


@pytest.mark.parametrize("precision", [*COARSE, Precision.SPARSE])
def test_with_feedback_all_of_a_constant_arrives_in_the_long_run(precision):
    """What is lost is sent later: the mean of what arrives tends to what was to be sent."""
    target, rest, arrived = normal(4), torch.zeros(4 * TILE), torch.zeros(4 * TILE)
    for _ in range(400):
        rest += target
        sent = round_trip(rest, precision)
        rest -= sent
        arrived += sent
    assert ((arrived / 400 - target).norm() / target.norm()).item() < 0.1
