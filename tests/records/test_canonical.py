"""Canonical bytes: kept for ever, one form for each record, and nothing else is let in."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.errors import FormatVersionError, RecordError
from gradientmail.records.canonical import MAX_RECORD_BYTES, decode, digest_of, encode
from gradientmail.records.commit import RoundRecord
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.control import Stop
from gradientmail.records.estimates import Estimates
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import Manifest
from gradientmail.records.presence import Presence
from tests.records.golden import COMMIT, CONTRIBUTION, GOLDEN, MANIFEST, NONCE, PRESENCE

KEY = "terms/0000000003.json"
TERM = Term(run="r1", term=3, closer="c-1", nonce=NONCE)
GOLDEN_CASES = [pytest.param(*case, id=name) for name, case in GOLDEN.items()]


def changed(record: msgspec.Struct, **fields: Any) -> bytes:
    tree = {**msgspec.json.decode(encode(record)), **fields}
    return msgspec.json.encode(tree, order="sorted")


def refused(kind: type[msgspec.Struct], data: bytes) -> RecordError:
    with pytest.raises(RecordError) as caught:
        decode(kind, KEY, data)
    assert caught.value.key == KEY
    assert KEY in str(caught.value)
    assert len(caught.value.reason) <= 1000, "a reason is recorded itself"
    return caught.value


# -- the bytes ------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "data"), GOLDEN_CASES)
def test_golden_bytes_are_written_and_read(record: msgspec.Struct, data: bytes) -> None:
    assert encode(record) == data
    assert decode(type(record), KEY, data) == record


@pytest.mark.parametrize(("record", "data"), GOLDEN_CASES)
def test_golden_bytes_are_plain_json_with_sorted_keys(record: msgspec.Struct, data: bytes) -> None:
    tree = json.loads(data)
    plain = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert plain.replace("1e-07", "1e-7").encode() == data


def test_a_digest_carries_its_algorithm() -> None:
    assert digest_of(b"") == "xxh3_128:99aa06d3014798d86001c324468d497f"


finite = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.none() | st.floats(0.0, 1e11)


@given(finite, st.none() | finite, st.floats(0.0, 1e37), seconds, seconds)
def test_any_finite_number_survives_and_is_written_one_way(
    closed_at: float, cosine: float | None, norm: float, step_s: float, sync_s: float
) -> None:
    record = msgspec.structs.replace(
        COMMIT,
        closed_at=closed_at,
        cosine=cosine,
        norm=norm,
        estimates=Estimates(step_s=step_s, sync_s=sync_s),
    )
    data = encode(record)
    again = decode(RoundRecord, KEY, data)
    assert again == record
    assert encode(again) == data


counts = st.integers(0, 2**53 - 1)


@given(
    steps=counts,
    tokens=counts,
    loss=st.none() | finite,
    device=st.text(max_size=100),
    left=st.booleans(),
)
def test_defaults_left_out_come_back(
    steps: int, tokens: int, loss: float | None, device: str, *, left: bool
) -> None:
    presence = Presence(
        run="r1",
        learner="alice",
        incarnation=NONCE,
        count=1,
        versions=(steps,),
        steps=steps,
        tokens=tokens,
        loss=loss,
        device=device,
        left=left,
    )
    data = encode(presence)
    assert decode(Presence, KEY, data) == presence
    assert (b'"left"' in data) == left


@given(st.dictionaries(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,9}\Z"), counts))
def test_the_order_of_a_dict_leaves_no_trace(applied: dict[str, int]) -> None:
    backwards = dict(reversed(list(applied.items())))
    first, second = (
        encode(msgspec.structs.replace(COMMIT, applied=own)) for own in (applied, backwards)
    )
    assert first == second


# -- what is refused ------------------------------------------------------------------------

FOREIGN = {
    "empty": b"",
    "space": b" ",
    "html": b"<html><body>502 Bad Gateway</body></html>",
    "pickle": b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01x\x94.",
    "safetensors": b"\x02\x00\x00\x00\x00\x00\x00\x00{}",
    "zeros": bytes(100),
    "not utf-8": b'{"kind":"term/1\xff"}',
    "a lone surrogate": b'{"kind":"\\ud800"}',
    "NaN": b'{"kind":"term/1","term":NaN}',
    "infinity": b'{"kind":"term/1","term":1e999}',
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "null": b"null",
    "a number": b"3",
    "a list": b"[]",
    "no kind": b"{}",
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in FOREIGN.items()])
@pytest.mark.parametrize("kind", [Manifest, RoundRecord, ContributionRecord, Term, Presence])
def test_foreign_bytes_are_refused_with_their_key(kind: type[msgspec.Struct], data: bytes) -> None:
    refused(kind, data)


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "ignore"))
)
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    refused(Term, data)


json_trees = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
)


@given(json_trees, st.sampled_from(["kind", "run", "term", "closer", "nonce"]))
def test_no_value_of_a_field_raises_anything_else(value: object, field: str) -> None:
    with contextlib.suppress(RecordError):
        decode(Term, KEY, changed(TERM, **{field: value}))


@pytest.mark.parametrize(
    "respelled",
    [
        lambda data: data + b"\n",
        lambda data: b" " + data,
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data + data,
        lambda data: data[:-1],
        lambda data: data.replace(b":", b": ", 1),
        lambda data: data.replace(b'"term":3', b'"term":3,"term":3'),
        lambda data: data.replace(b'"term":3', b'"term":3.0'),
        lambda data: data.replace(b'"term":3', b'"term":3e0'),
        lambda data: data.replace(b'"term":3', b'"term":-3'),
        lambda data: data.replace(b'"term":3', b'"term":"3"'),
        lambda data: data.replace(b'"term":3', b'"term":03'),
        lambda data: data.replace(b"c-1", b"c\\u002d1"),
        lambda data: b'{"run":"r1",' + data.removeprefix(b"{").replace(b',"run":"r1"', b""),
    ],
)
def test_another_spelling_of_a_record_is_refused(respelled: Any) -> None:
    data = encode(TERM)
    assert respelled(data) != data
    refused(Term, respelled(data))


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (TERM, {"term": 0}),
        (TERM, {"term": 2**53}),
        (TERM, {"term": 10**40}),
        (TERM, {"term": True}),
        (TERM, {"term": None}),
        (TERM, {"closer": ""}),
        (TERM, {"closer": "-rm"}),
        (TERM, {"closer": "../etc"}),
        (TERM, {"closer": "c-1\n"}),
        (TERM, {"closer": "x" * 65}),
        (TERM, {"closer": "\u0663"}),
        (TERM, {"nonce": NONCE.upper()}),
        (TERM, {"nonce": NONCE[:-1]}),
        (TERM, {"nonce": NONCE + "\n"}),
        (CONTRIBUTION, {"anchor": NONCE}),
        (CONTRIBUTION, {"anchor": f"md5:{NONCE}"}),
        (CONTRIBUTION, {"steps": 0}),
        (CONTRIBUTION, {"tokens": 0}),
        (CONTRIBUTION, {"step_s": -1.0}),
        (CONTRIBUTION, {"norms": [-1.0]}),
        (CONTRIBUTION, {"norms": [10**38]}),
        (CONTRIBUTION, {"norms": ["nan"]}),
        (CONTRIBUTION, {"norms": None}),
        (CONTRIBUTION, {"final": 0}),
        (COMMIT, {"version": 0}),
        (COMMIT, {"applied": {"no name": 1}}),
        (COMMIT, {"params": {"key": "k", "size_bytes": 0, "digest": f"xxh3_128:{NONCE}"}}),
        (COMMIT, {"rejected": [{"key": "k", "reason": "x" * 2001}]}),
        (MANIFEST, {"settings": {"sync_every": 0}}),
        (PRESENCE, {"rejected": "x" * 2001}),
    ],
)
def test_a_value_out_of_its_type_or_range_is_refused(
    record: msgspec.Struct, fields: dict[str, Any]
) -> None:
    assert "not a " in refused(type(record), changed(record, **fields)).reason


@pytest.mark.parametrize("field", ["run", "term", "closer", "nonce", "kind"])
def test_a_missing_field_is_named(field: str) -> None:
    tree = msgspec.json.decode(encode(TERM))
    del tree[field]
    assert f"`{field}`" in refused(Term, msgspec.json.encode(tree, order="sorted")).reason


def test_a_record_of_another_kind_is_refused() -> None:
    refused(Beat, encode(TERM))
    refused(Term, changed(TERM, kind="terms/1"))
    refused(Term, changed(TERM, kind="term/one"))


def test_an_object_larger_than_any_record_is_refused_by_its_size() -> None:
    assert str(MAX_RECORD_BYTES) in refused(Term, b"[" * (MAX_RECORD_BYTES + 1)).reason


@pytest.mark.parametrize("kind", ["term/" + "9" * 100_000, "x" * 100_000, "term/1" + " " * 9999])
def test_a_long_lie_does_not_reach_the_reason(kind: str) -> None:
    refused(Term, changed(TERM, kind=kind))


# -- evolution ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["term/2", "term/0", "term/10"])
def test_another_major_version_is_refused_naming_both(kind: str) -> None:
    with pytest.raises(FormatVersionError, match=rf"'{kind}'.* reads 'term/1'") as caught:
        decode(Term, KEY, changed(TERM, kind=kind, term="unreadable here"))
    assert caught.value.key == KEY


def test_a_field_that_a_newer_gradientmail_added_is_ignored() -> None:
    assert decode(Term, KEY, changed(TERM, zone="eu", alpha=[{"deep": None}])) == TERM
    settings = msgspec.to_builtins(MANIFEST.settings)
    newer = changed(MANIFEST, settings={**settings, "new_setting": 1})
    assert decode(Manifest, KEY, newer) == MANIFEST


def test_a_setting_that_an_older_gradientmail_did_not_know_has_its_default() -> None:
    settings = msgspec.to_builtins(MANIFEST.settings)
    del settings["retain"]
    assert decode(Manifest, KEY, changed(MANIFEST, settings=settings)) == MANIFEST


# -- nothing unreadable is written ----------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (PRESENCE, {"loss": float("nan")}),
        (PRESENCE, {"loss": float("inf")}),
        (COMMIT, {"cosine": float("nan")}),
        (COMMIT, {"norm": float("nan")}),
        (COMMIT, {"norm": -1.0}),
        (COMMIT, {"closer": "no name"}),
        (COMMIT, {"rejected": GOLDEN["commit"][0].rejected * 500_000}),  # type: ignore[attr-defined]
        (CONTRIBUTION, {"norms": (float("inf"),)}),
        (CONTRIBUTION, {"steps": 0}),
    ],
)
def test_a_record_that_no_reader_would_accept_is_not_written(
    record: msgspec.Struct, fields: dict[str, Any]
) -> None:
    with pytest.raises(RecordError, match=f"a new {type(record).__name__}"):
        encode(msgspec.structs.replace(record, **fields))


def test_a_whole_number_in_a_float_field_is_written_and_read() -> None:
    record = msgspec.structs.replace(COMMIT, closed_at=5)
    assert decode(RoundRecord, KEY, encode(record)).closed_at == 5.0


def test_a_stop_may_say_anything_short() -> None:
    stop = Stop(run="r1", reason='"\\\n\u0000\u00fc\U0001f600', nonce=NONCE)
    assert decode(Stop, KEY, encode(stop)) == stop
