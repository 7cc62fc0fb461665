"""Valid bytes, mutated: a header or a record is refused with the one error there is, or it is one.

Text tokens are such as parsers fall over; long ones make anything quadratic miss its deadline.
"""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.precision import Precision
from gradientmail.errors import PayloadError, RecordError
from gradientmail.records import canonical
from tests.records.golden import CONTRIBUTION, GOLDEN

DEADLINE_MS = 5000
"""A thousand times what one example needs."""

TOKENS = [
    *(b"", b"\x00", b"\xff", b" ", b"\n", b"\xef\xbb\xbf", b"\xc3\x28", b"\\ud800", b"\\u0000"),
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"{}", b"[]", b'""', b"null", b"true"),
    *(b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"0.0", b"-0", b"1E5", b"9007199254740993"),
    *(b"9" * 10_000, b"[" * 50_000, b"]" * 50_000, b'{"a":' * 20_000, b" " * 50_000),
    *(b'"kind":"term/2",', b'"__metadata__":{"gradientmail":"x"},', b'"dtype":"F32"', b"[4096]"),
]

Edit = Callable[[bytes], bytes]
places = st.floats(0.0, 1.0)


def replaced(start: float, length: int, token: bytes) -> Edit:
    """Replace ``length`` bytes at a share of the whole."""

    def edit(data: bytes) -> bytes:
        at = int(start * len(data))
        return data[:at] + token + data[at + length :]

    return edit


def copied(source: float, length: int, target: float) -> Edit:
    """Copy a stretch to elsewhere: fields twice, tensors twice."""

    def edit(data: bytes) -> bytes:
        at, to = int(source * len(data)), int(target * len(data))
        return data[:to] + data[at : at + length] + data[to:]

    return edit


edits = st.lists(
    st.builds(
        replaced, places, st.integers(0, 40), st.sampled_from(TOKENS) | st.binary(max_size=4)
    )
    | st.builds(copied, places, st.integers(1, 200), places),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, changes: list[Edit]) -> bytes:
    for change in changes:
        data = change(data)
    return data


RECORDS = [pytest.param(record, id=name) for name, (record, _) in GOLDEN.items()]


@pytest.mark.parametrize("record", RECORDS)
@given(changes=edits)
@settings(max_examples=60, deadline=DEADLINE_MS)
def test_a_mutated_record_is_refused_or_is_a_record(
    record: msgspec.Struct, changes: list[Edit]
) -> None:
    data = mutated(canonical.encode(record), changes)
    try:
        read = canonical.decode(type(record), "key", data)
    except RecordError as exc:
        reason = exc.reason
        assert len(reason) <= 1000
    else:
        assert canonical.decode(type(record), "key", canonical.encode(read)) == read


FORMATS = [
    PayloadFormat(4096, {"delta": Precision.I8}),
    PayloadFormat(8192, {"delta": Precision.F32}),
    PayloadFormat(4096, {"momentum": Precision.NF4, "master": Precision.F32}),
    PayloadFormat(0, {"delta": Precision.BF16}),
]
METADATA = canonical.encode(CONTRIBUTION).decode()


@pytest.mark.parametrize("payload_format", FORMATS, ids=lambda one: ",".join(one.sections))
@pytest.mark.parametrize("metadata", [None, "", METADATA], ids=["none", "empty", "a record"])
@given(changes=edits, lengths=st.none() | st.integers(0, 2**64 - 1) | st.integers(0, 300_000))
@settings(max_examples=40, deadline=DEADLINE_MS)
def test_a_mutated_header_is_refused_or_has_the_very_text_of_its_format(
    payload_format: PayloadFormat, metadata: str | None, changes: list[Edit], lengths: int | None
) -> None:
    text = mutated(payload_format.header(metadata)[8:].rstrip(b" "), changes)
    raw = text.ljust(-(-(8 + len(text)) // 4096) * 4096 - 8)
    head = (len(raw) if lengths is None else lengths).to_bytes(8, "little") + raw
    size_bytes = len(head) + payload_format.data_bytes
    try:
        header = payload_format.check_header(head[: payload_format.max_header_bytes], size_bytes)
    except PayloadError as exc:
        reason = str(exc)
        assert reason.isascii()
        assert len(reason) <= 1000
    else:
        found = head[8 : header.data_start].rstrip(b" ")
        assert found == payload_format.header(header.metadata)[8:].rstrip(b" ")
        assert header.data_start + payload_format.data_bytes == size_bytes
