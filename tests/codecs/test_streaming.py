import pytest
import torch
from safetensors.torch import load

from gradientmail.codecs import (
    CHUNK,
    TILE,
    BufferSource,
    BufferTarget,
    FileSource,
    FileTarget,
    PayloadFormat,
    PayloadReader,
    PayloadWriter,
    Precision,
    decode_chunk,
    decoded,
    encode_chunk,
    encoded,
)
from gradientmail.errors import NonFiniteError, PayloadError, SettingsError

MIXED = PayloadFormat(
    3 * TILE,
    {"codes": Precision.NF4, "master": Precision.F32, "half": Precision.BF16, "i8": Precision.I8},
)


def normal(seed, numel=3 * TILE):
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def written(payload_format, target, starts):
    """Write a tile at each of ``starts`` of every section; what the writer said readers get."""
    writer = PayloadWriter(payload_format, target)
    said = {section: torch.zeros(payload_format.numel) for section in payload_format.sections}
    for start in starts:
        for seed, section in enumerate(payload_format.sections):
            x = normal(seed)[start : start + TILE]
            said[section][start : start + TILE] = writer.write(section, start, x)
    return said


def bits(x):
    return x.view(torch.int32)


def test_a_reader_gets_bit_for_bit_what_the_writer_said_in_any_order_of_chunks():
    target = BufferTarget()
    said = written(MIXED, target, (2 * TILE, 0, TILE))
    reader = PayloadReader(MIXED, BufferSource(target.data))
    for section, expected in said.items():
        for start, stop in ((TILE, 2 * TILE), (0, 3 * TILE), (2 * TILE, 3 * TILE), (0, 2 * TILE)):
            found = reader.read(section, start, stop)
            assert torch.equal(bits(found), bits(expected[start:stop]))


@pytest.mark.parametrize("precision", Precision)
def test_chunk_by_chunk_is_the_same_object_as_all_at_once(precision):
    payload_format = PayloadFormat(3 * TILE, {"data": precision})
    target = BufferTarget()
    PayloadWriter(payload_format, target).write("data", 0, normal(0))
    by_chunks = BufferTarget()
    written(payload_format, by_chunks, (TILE, 2 * TILE, 0))
    assert by_chunks.data == target.data == encoded(normal(0), precision)


def test_what_was_read_stays_when_more_is_read():
    data = encoded(normal(1), Precision.F32)
    reader = PayloadReader(PayloadFormat(3 * TILE, {"data": Precision.F32}), BufferSource(data))
    first = reader.read("data", 0, TILE)
    reader.read("data", TILE, 2 * TILE)
    assert torch.equal(first, normal(1)[:TILE])


def test_a_reader_fills_a_given_tensor():
    reader = PayloadReader(
        PayloadFormat(3 * TILE, {"data": Precision.I4}),
        BufferSource(encoded(normal(2), Precision.I4)),
    )
    out = torch.full((2 * TILE,), 9.0)
    reader.read("data", TILE, 3 * TILE, out=out)
    assert torch.equal(out, decoded(encoded(normal(2), Precision.I4), Precision.I4)[TILE:])


def test_files_hold_the_same_bytes_as_buffers(tmp_path):
    buffer = BufferTarget()
    said = written(MIXED, buffer, (0, TILE, 2 * TILE))
    with FileTarget(tmp_path / "spool") as target:
        written(MIXED, target, (TILE, 0, 2 * TILE))
    assert (tmp_path / "spool").read_bytes() == buffer.data
    with FileSource(tmp_path / "spool") as source:
        reader = PayloadReader(MIXED, source)
        assert torch.equal(reader.read("codes", TILE, 2 * TILE), said["codes"][TILE : 2 * TILE])


@pytest.mark.parametrize("earlier", [10, 1_000_000])
def test_a_spool_file_is_overwritten_whatever_it_held(tmp_path, earlier):
    (tmp_path / "spool").write_bytes(b"\xff" * earlier)
    with FileTarget(tmp_path / "spool") as target:
        said = written(MIXED, target, (0, TILE, 2 * TILE))
    with FileSource(tmp_path / "spool") as source:
        assert torch.equal(PayloadReader(MIXED, source).read("i8", 0, 3 * TILE), said["i8"])


def test_the_data_can_be_written_alone_and_its_header_put_before_it():
    payload_format = PayloadFormat(3 * TILE, {"data": Precision.I8})
    target = BufferTarget()
    PayloadWriter(payload_format, target, header=b"").write("data", 0, normal(3))
    assert len(target.data) == payload_format.data_bytes
    whole = payload_format.header("digest of the data") + target.data
    assert whole == encoded(normal(3), Precision.I8, metadata="digest of the data")
    reader = PayloadReader(payload_format, BufferSource(whole))
    assert reader.header.metadata == "digest of the data"


@pytest.mark.parametrize("metadata", ["", "x" * 5000])
def test_the_data_is_found_behind_metadata_of_any_length(metadata):
    data = encoded(normal(8), Precision.I8, metadata=metadata)
    expected = decode_chunk(encode_chunk(normal(8), Precision.I8), Precision.I8)
    assert torch.equal(decoded(data, Precision.I8), expected)


def test_nothing_of_a_chunk_that_is_not_finite_is_written():
    payload_format = PayloadFormat(TILE, {"data": Precision.I8})
    target = BufferTarget()
    writer = PayloadWriter(payload_format, target)
    before = bytes(target.data)
    with pytest.raises(NonFiniteError):
        writer.write("data", 0, torch.full((TILE,), torch.nan))
    assert target.data == before


# -- cut off, foreign, empty ----------------------------------------------------------------


def test_a_small_object_cut_off_at_any_byte_is_refused():
    data = bytes(encoded(normal(4, TILE), Precision.I4))
    payload_format = PayloadFormat(TILE, {"data": Precision.I4})
    for count in range(len(data)):
        with pytest.raises(PayloadError, match=r"cut off|cannot hold a header|calls for 6274"):
            PayloadReader(payload_format, BufferSource(data[:count]))


def test_a_file_cut_off_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "spool"
    path.write_bytes(encoded(normal(5), Precision.F32))
    with FileSource(path) as source:
        reader = PayloadReader(PayloadFormat(3 * TILE, {"data": Precision.F32}), source)
        with path.open("r+b") as file:
            file.truncate(4096 + 4 * TILE + 5)
        assert torch.equal(reader.read("data", 0, TILE), normal(5)[:TILE])
        with pytest.raises(PayloadError, match="cut off after 20485 bytes"):
            reader.read("data", TILE, 2 * TILE)


def test_a_buffer_ends_where_it_ends():
    with pytest.raises(PayloadError, match="cut off after 3 bytes"):
        BufferSource(b"abc").read_at(2, memoryview(bytearray(2)))


@pytest.mark.parametrize("precision", Precision)
def test_encoded_objects_come_back_and_load_as_safetensors(precision):
    x = normal(6, CHUNK + TILE)  # more than one chunk, the last one short
    data = encoded(x.view(2, -1).double(), precision, section="params", metadata="{}")
    chunk = encode_chunk(x, precision)
    found = decoded(data, precision, section="params")
    assert torch.equal(bits(found), bits(decode_chunk(chunk, precision)))
    loaded = load(bytes(data))
    assert loaded.keys() == {f"params.{name}" for name in chunk}
    assert all(torch.equal(loaded[f"params.{name}"], items) for name, items in chunk.items())


def test_one_section_of_a_format_can_be_decoded():
    target = BufferTarget()
    said = written(MIXED, target, (0, TILE, 2 * TILE))
    assert torch.equal(decoded(bytes(target.data), MIXED, section="half"), said["half"])


@pytest.mark.parametrize("precision", Precision)
def test_nothing_is_an_object_too(precision):
    data = encoded(torch.empty(0), precision)
    assert len(data) == 4096
    assert decoded(data, precision).shape == (0,)


def test_numbers_that_are_not_whole_tiles_are_refused_with_what_to_do():
    with pytest.raises(SettingsError, match="pad them as layout"):
        encoded(torch.ones(100), Precision.I8)


@pytest.mark.parametrize(
    "data", [b"", b"1234567", b"<?xml version='1.0'?><Error/>", bytes(5000), b"\xff" * 5000]
)
def test_foreign_bytes_are_refused(data):
    with pytest.raises(PayloadError):
        decoded(data, Precision.I8)


def test_an_object_of_another_precision_is_refused():
    with pytest.raises(PayloadError, match="header differs"):
        decoded(encoded(normal(7), Precision.F8_E4M3), Precision.I8)
