import pytest

from gradientmail.codecs import TILE, Precision


@pytest.mark.parametrize(
    ("precision", "bytes_per_parameter"),
    [
        ("F32", 4.0),
        ("F16", 2.0),
        ("BF16", 2.0),
        ("F8_E4M3", 1.016),
        ("I8", 1.016),
        ("I4", 0.532),
        ("NF4", 0.532),
        ("F4", 0.532),
    ],
)
def test_bytes_per_parameter_are_those_of_codec_md(precision, bytes_per_parameter):
    assert round(Precision(precision).bytes_per_parameter, 3) == bytes_per_parameter


def test_a_tile_is_a_whole_number_of_bytes_in_every_precision():
    assert all((TILE * p.bytes_per_parameter).is_integer() for p in Precision)
