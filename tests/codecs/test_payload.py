import json

import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from gradientmail.codecs import METADATA_LIMIT_BYTES, TILE, Header, PayloadFormat, Precision
from gradientmail.errors import PayloadError, SettingsError

I8 = PayloadFormat(TILE, {"delta": Precision.I8})
OUTER = PayloadFormat(3 * TILE, {"momentum": Precision.NF4, "master": Precision.F32})
GOOD = (
    '{"__metadata__":{"gradientmail":"{\\"nonce\\":1}"},'
    '"delta.bases":{"dtype":"I16","shape":[1],"data_offsets":[0,2]},'
    '"delta.scales":{"dtype":"U8","shape":[64],"data_offsets":[2,66]},'
    '"delta.codes":{"dtype":"I8","shape":[4096],"data_offsets":[66,4162]}}'
)


def head_of(text, length=None):
    """A header with ``text``, padded as ours; its length field may lie."""
    raw = text if isinstance(text, bytes) else text.encode()
    raw = raw.ljust(-(-(8 + len(raw)) // 4096) * 4096 - 8)
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw


def check(payload_format, head, data_bytes=None):
    data_bytes = payload_format.data_bytes if data_bytes is None else data_bytes
    return payload_format.check_header(head, len(head) + data_bytes)


# -- what is written ------------------------------------------------------------------------


def test_the_header_has_these_very_bytes():
    head = I8.header('{"nonce":1}')
    assert head == head_of(GOOD)
    assert check(I8, head) == Header('{"nonce":1}', 4096)


def test_wide_items_come_first_and_leave_no_hole():
    places = [(p.section, p.entry.name, p.offset, p.end) for p in OUTER.placed]
    assert places == [
        ("master", "values", 0, 49152),
        ("momentum", "bases", 49152, 49158),
        ("momentum", "scales", 49158, 49542),
        ("momentum", "codes", 49542, 55686),
    ]
    assert OUTER.data_bytes == 55686
    assert OUTER.size_bytes(None) == 4096 + 55686


@given(metadata=st.none() | st.text(max_size=9000))
@settings(max_examples=50, deadline=None)
def test_any_metadata_comes_back_and_data_starts_at_a_page(metadata):
    if metadata and any(0xD800 <= ord(letter) < 0xE000 for letter in metadata):
        return
    head = OUTER.header(metadata)
    assert len(head) % 4096 == 0
    assert check(OUTER, head) == Header(metadata, len(head))
    assert OUTER.size_bytes(metadata) == len(head) + OUTER.data_bytes


def test_the_longest_metadata_fits_what_readers_allow_and_no_longer_is_written():
    overhead = len(',"__metadata__":{"gradientmail":""}')
    longest = "x" * (METADATA_LIMIT_BYTES - overhead)
    head = I8.header(longest)
    assert len(head) <= I8.max_header_bytes
    assert check(I8, head).metadata == longest
    with pytest.raises(PayloadError, match="metadata takes more than 262144 bytes"):
        I8.header(longest + "x")


@pytest.mark.parametrize("payload_format", [I8, OUTER, PayloadFormat(0, {"delta": Precision.F4})])
def test_safetensors_reads_what_we_write(payload_format, tmp_path):
    path = tmp_path / "payload.safetensors"
    path.write_bytes(payload_format.header('a "record"') + bytes(payload_format.data_bytes))
    loaded = load(path.read_bytes())
    expected = {f"{p.section}.{p.entry.name}": (p.items,) for p in payload_format.placed}
    assert {key: tuple(tensor.shape) for key, tensor in loaded.items()} == expected
    with safetensors.safe_open(path, framework="pt") as file:
        assert file.metadata() == {"gradientmail": 'a "record"'}


def test_we_read_what_safetensors_writes_only_where_the_schema_is_ours():
    plain = PayloadFormat(TILE, {"params": Precision.F32})
    theirs = save({"params.values": torch.ones(TILE)}, metadata={"gradientmail": 'a\n"b" \u00e9'})
    header = plain.check_header(theirs, len(theirs))
    assert header == Header('a\n"b" \u00e9', len(theirs) - 4 * TILE)

    theirs = save({"params.values": torch.ones(TILE // 2, 2)})
    with pytest.raises(PayloadError, match=r"\[2048,2\].* expected .*\[4096\]"):
        plain.check_header(theirs, len(theirs))
    codes = torch.zeros(TILE, dtype=torch.int8)
    scales, bases = torch.zeros(64, dtype=torch.uint8), torch.zeros(1, dtype=torch.int16)
    theirs = save({"delta.bases": bases, "delta.scales": scales, "delta.codes": codes})
    with pytest.raises(PayloadError, match="header differs"):  # it puts codes before scales
        I8.check_header(theirs, len(theirs))


def test_numbers_that_are_not_whole_tiles_have_no_format():
    with pytest.raises(SettingsError, match="4097 elements are not whole tiles of 4096"):
        PayloadFormat(4097, {"delta": Precision.I8})


# -- what is refused ------------------------------------------------------------------------


def swapped(old, new, text=GOOD):
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


def parsed(change):
    """GOOD with its parsed fields changed, written as compactly as ours."""
    fields = json.loads(GOOD)
    return json.dumps(change(fields) or fields, separators=(",", ":"))


CODES = '"delta.codes":{"dtype":"I8","shape":[4096],"data_offsets":[66,4162]}'
SCALES = '"delta.scales":{"dtype":"U8","shape":[64],"data_offsets":[2,66]}'
ONE_STRING = "the metadata is not one string under the key 'gradientmail'"
BAD_TEXTS = {
    "nothing": ("", "header differs at byte 8: ''"),
    "an empty object": ("{}", "header differs at byte 9"),
    "null": ("null", "header differs at byte 8: 'null'"),
    "an array": ("[]", r"header differs at byte 8: '\[\]'"),
    "not JSON": ("hello", "header differs at byte 8: 'hello'"),
    "JSON cut off": (GOOD[:-1], r"4162\]\}', expected .*4162\]\}\}'"),
    "JSON twice": (GOOD + GOOD, r"4162\]\}\}\{.*expected.*4162\]\}\}'$"),
    "a byte order mark": ("\ufeff" + GOOD, r"differs at byte 8: '\\xef\\xbb\\xbf"),
    "UTF-16": (GOOD.encode("utf-16-le"), r"differs at byte 9: '\{\\x00"),
    "not UTF-8": (
        b'{"__metadata__":{"gradientmail":"\xff"}}',
        "not JSON: .*can't decode byte 0xff",
    ),
    "a lone surrogate": (swapped('"{\\"', '"\\ud800{\\"'), "not JSON: .*surrogates not allowed"),
    "a control letter": (swapped("nonce", "non\nce"), "not JSON: Invalid control character"),
    "metadata cut off": (GOOD[:40], "not JSON: Unterminated string"),
    "a space": (swapped(',"shape', ', "shape'), '"I16", "sha.*expected.*"I16","sha'),
    "a leading space": (" " + GOOD, "differs at byte 8: ' {"),
    "a tab after it": (GOOD + "\t", r"4162\]\}\}\\t'"),
    "escaped letters": (swapped("nonce", "\\u006eonce"), r"\\\\u006eonce.*expected.*nonce"),
    "a foreign entry": (parsed(lambda f: f.update(x=f["delta.bases"])), '\\},"x":'),
    "a million levels": ("[" * 200_000, r"differs at byte 8: '\[\[\["),
    "a million levels within": (
        swapped("[66,4162]", "[" * 200_000),
        r"\[\[\[.*expected.*\[66,4162",
    ),
    "levels in the metadata": (swapped('"{\\"nonce\\":1}"', "[" * 200_000), ONE_STRING),
    "metadata of an object": (swapped('"{\\"nonce\\":1}"', "{}"), ONE_STRING),
    "metadata of null": (swapped('"{\\"nonce\\":1}"', "null"), ONE_STRING),
    "other metadata": (swapped("gradientmail", "format"), ONE_STRING),
    "more metadata": (swapped('1}"', '1}","format":"pt"'), '1}","format"'),
    "no bases": (
        parsed(lambda f: f.pop("delta.bases") and None),
        "delta.scales.* expected .*bases",
    ),
    "no codes": (swapped("," + CODES, ""), r"66\]\}\}', expected .*66\]\},\"delta"),
    "the entries in another order": (
        parsed(lambda f: dict(sorted(f.items()))),
        'delta.codes".* expected .*delta.scales"',
    ),
    "an entry twice": (swapped(CODES, f"{CODES},{CODES}"), '4162\\]\\},"delta.codes"'),
    "metadata twice": (swapped('"delta.bases', '"__metadata__":{},"delta.bases'), "__metadata__"),
    "a key twice": (swapped('"dtype":"I8"', '"dtype":"I8","dtype":"I8"'), '"I8","dtype"'),
    "a wrong name": (swapped("delta.codes", "delta.coded"), "delta.coded.*delta.codes"),
    "another dtype of the size": (swapped('"I8"', '"U8"'), '"dtype":"U8".*"dtype":"I8"'),
    "a dtype nobody knows": (swapped('"I8"', '"I7"'), "I7"),
    "a dtype of a number": (swapped('"I8"', "8"), '"dtype":8'),
    "another shape of the size": (swapped("[4096]", "[64,64]"), r"\[64,64\]"),
    "a shape of the whole product": (swapped("[4096]", "[4096,1]"), r"\[4096,1\]"),
    "a shape that overflows": (swapped("[4096]", "[4294967296,4294967296,4096]"), "4294967296"),
    "a negative shape": (swapped("[4096]", "[-4096]"), "-4096"),
    "a shape of true": (swapped("[1]", "[true]"), r"\[true\]"),
    "a shape of a float": (swapped("[4096]", "[4096.0]"), r"4096\.0"),
    "a shape of an exponent": (swapped("[4096]", "[4.096e3]"), r"4\.096e3"),
    "a shape of NaN": (swapped("[4096]", "[NaN]"), "NaN"),
    "a number of many digits": (swapped("[4096]", "[" + "9" * 200_000 + "]"), "99999"),
    "no shape": (swapped('"shape":[4096],', ""), '"I8","data_offsets"'),
    "a hole": (swapped("[66,4162]", "[67,4163]"), r"\[67,4.*expected.*\[66,4162\]"),
    "an overlap": (swapped("[66,4162]", "[65,4161]"), r"\[65,"),
    "a longer entry": (swapped("[66,4162]", "[66,4163]"), r"\[66,4163"),
    "negative offsets": (swapped("[66,4162]", "[-4096,0]"), r"\[-4096"),
    "offsets that overflow": (swapped("4162]", "18446744073709551682]"), "18446744073709551682"),
    "offsets the wrong way": (swapped("[66,4162]", "[4162,66]"), r"\[4162,66\]"),
    "three offsets": (swapped("[66,4162]", "[66,4162,0]"), r"4162,0\]"),
    "codes before scales": (
        swapped(SCALES, "")[:-1].replace(",,", ",").replace("[66,4162]", "[2,4098]")
        + ',"delta.scales":{"dtype":"U8","shape":[64],"data_offsets":[4098,4162]}}',
        "delta.codes",
    ),
    "ten thousand tensors": (
        "{" + ",".join(f'"t{i}":{{"dtype":"U8"}}' for i in range(10_000)) + "}",
        'differs at byte 10: \'{"t0"',
    ),
    "a format of another size": (
        PayloadFormat(2 * TILE, I8.sections).header(None)[8:].decode(),
        r"\[2\].*expected.*\[1\]",
    ),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_header_that_is_not_exactly_ours_is_refused_with_the_reason(name):
    text, reason = BAD_TEXTS[name]
    with pytest.raises(PayloadError, match=reason) as refusal:
        check(I8, head_of(text))
    assert len(str(refusal.value)) < 400
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**32, 270_329])
def test_a_header_length_is_bounded_before_anything_is_read(length):
    with pytest.raises(PayloadError, match=rf"claims {length + 8} bytes, more than 266240"):
        check(I8, head_of(GOOD, length))


def test_a_length_that_ends_within_the_text_is_refused():
    with pytest.raises(PayloadError, match="header differs at byte 108"):
        check(I8, head_of(GOOD, 100))
    with pytest.raises(PayloadError, match="header differs at byte 8: ''"):
        check(I8, head_of(GOOD, 0))


def test_a_head_that_is_cut_off_is_refused_at_every_byte():
    head = I8.header("record")
    for count in range(len(head)):
        reason = "cannot hold a header" if count < 8 else f"cut off after {count} of the header's"
        with pytest.raises(PayloadError, match=reason):
            I8.check_header(head[:count], count)


@pytest.mark.parametrize("by", [-4162, -1, 1, 4096])
def test_an_object_of_another_size_is_refused(by):
    head = I8.header(None)
    with pytest.raises(PayloadError, match=rf"{8258 + by} bytes, but the header calls for 8258"):
        check(I8, head, I8.data_bytes + by)


def test_only_the_padding_may_differ():
    raw = GOOD.encode()
    tight = len(raw).to_bytes(8, "little") + raw
    assert check(I8, tight) == Header('{"nonce":1}', len(tight))
    assert check(I8, tight + b"data that was read along", I8.data_bytes - 24).metadata


@given(at=st.integers(0, 8 + len(GOOD) - 1), byte=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_no_changed_byte_passes_except_within_the_metadata(at, byte):
    head = bytearray(head_of(GOOD))
    if head[at] == byte:
        return
    head[at] = byte
    metadata = range(8 + GOOD.index('{\\"'), 8 + GOOD.index('"},"delta'))
    try:
        found = check(I8, bytes(head))
    except PayloadError:
        return
    assert at in metadata
    assert found.metadata != '{"nonce":1}'
