"""Which contributions count, and that each refusal says why in words a learner can act on."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.protocol.judging import (
    MAX_NORM,
    Round,
    reason_to_reject,
    reason_to_reject_data,
)
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.keys import MailKey

NONCE = "0123456789abcdef0123456789abcdef"
OTHER = NONCE[::-1]


def digest(of: str) -> str:
    return f"xxh3_128:{of}"


ROUND = Round(
    run="r1",
    fragment=1,
    version=7,
    anchors={5: digest(OTHER), 6: digest(NONCE)},
    precision="I8",
    tensors=2,
    weighs_samples=False,
    applied={"bob": 6, "carol": 5},
)
KEY = MailKey(fragment=1, base=6, learner="alice", nonce=NONCE)
GOOD = ContributionRecord(
    run="r1",
    learner="alice",
    incarnation=OTHER,
    fragment=1,
    base=6,
    anchor=digest(NONCE),
    steps=10,
    tokens=100,
    step_s=0.25,
    final=False,
    precision="I8",
    norms=(0.125, None),
    digest=digest(OTHER),
    nonce=NONCE,
)


def reason(**fields: Any) -> str | None:
    """Return why a good record with ``fields`` changed does not count."""
    return reason_to_reject(ROUND, KEY, msgspec.structs.replace(GOOD, **fields))


# -- by the key -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "base", "counts"),
    [
        ("alice", 6, True),
        ("alice", 5, True),
        ("alice", 4, False),
        ("alice", 7, False),
        ("bob", 6, False),
        ("bob", 5, False),
        ("carol", 6, True),
        ("carol", 5, False),
    ],
)
def test_only_a_base_that_still_counts_and_was_not_used_is_read(
    learner: str, base: int, *, counts: bool
) -> None:
    """Bob was used up to base 6, Carol up to 5; 5 and 6 are within the staleness allowed."""
    assert ROUND.reads(KEY._replace(learner=learner, base=base)) == counts


@given(st.integers(0, 9), st.integers(0, 9))
def test_a_learner_is_used_at_most_once_for_each_base(base: int, used: int) -> None:
    """Whatever was posted twice: after base ``used`` nothing at or under it is read again."""
    judged = Round(
        run="r1",
        fragment=0,
        version=10,
        anchors=dict.fromkeys(range(10), digest(NONCE)),
        precision="I8",
        tensors=1,
        weighs_samples=False,
        applied={"alice": used},
    )
    assert judged.reads(MailKey(0, base, "alice", NONCE)) == (base > used)


# -- by the header --------------------------------------------------------------------------


def test_a_good_header_counts() -> None:
    assert reason() is None
    assert reason(incarnation=NONCE, steps=1, tokens=2**53 - 1, final=True) is None


def test_a_stale_base_counts_against_its_own_anchor() -> None:
    key = KEY._replace(base=5)
    stale = msgspec.structs.replace(GOOD, base=5, anchor=digest(OTHER))
    assert reason_to_reject(ROUND, key, stale) is None
    mixed = msgspec.structs.replace(stale, anchor=digest(NONCE))
    assert reason_to_reject(ROUND, key, mixed) == "made against another version 5 than this run's"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"run": "r2"}, "its run is 'r2', expected 'r1'"),
        ({"learner": "bob"}, "its learner is 'bob', expected 'alice'"),
        ({"nonce": OTHER}, f"its nonce is '{OTHER}', expected '{NONCE}'"),
        ({"fragment": 0}, "its fragment is 0, expected 1"),
        ({"base": 5}, "its base is 5, expected 6"),
        ({"precision": "F32"}, "its codec is 'F32', expected 'I8'"),
        ({"norms": (1.0,)}, "its number of tensors is 1, expected 2"),
        ({"norms": (1.0,) * 3}, "its number of tensors is 3, expected 2"),
        ({"anchor": digest(OTHER)}, "made against another version 6 than this run's"),
    ],
)
def test_a_header_of_something_else_is_refused_saying_what(
    fields: dict[str, Any], expected: str
) -> None:
    assert reason(**fields) == expected


def test_without_samples_nothing_counts_where_they_weigh() -> None:
    judged = replace(ROUND, weighs_samples=True)
    assert "step(samples=...)" in (reason_to_reject(judged, KEY, GOOD) or "")
    counted = msgspec.structs.replace(GOOD, samples=1)
    assert reason_to_reject(judged, KEY, counted) is None


# -- by the data ----------------------------------------------------------------------------


@given(st.floats(1e-20, 1e11), st.floats(-9e-4, 9e-4))
def test_norms_may_differ_as_sums_in_another_order_do(norm: float, error: float) -> None:
    assert reason_to_reject_data([norm], [norm * (1 + error)]) is None


@pytest.mark.parametrize(
    ("claimed", "found", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.1], "tensor 1 has norm 2.1, its header says 2.0"),
        ([0.0], [1e-3], "tensor 0 has norm 0.001, its header says 0.0"),
        ([1e-3], [0.0], "tensor 0 has norm 0, its header says 0.001"),
        ([None], [0.5], "tensor 0 has norm 0.5, its header says None"),
        ([2e12], [2e12], "tensor 0 has norm 2e+12, above the limit of 1e+12"),
        ([1.0], [float("nan")], "tensor 0 has norm nan, its header says 1.0"),
        ([1.0], [float("inf")], "tensor 0 has norm inf, above the limit of 1e+12"),
    ],
)
def test_data_that_is_not_what_the_header_says_is_refused(
    claimed: list[float | None], found: list[float], expected: str
) -> None:
    assert reason_to_reject_data(claimed, found) == expected


def test_absent_and_empty_tensors_and_the_limit_itself_are_good() -> None:
    assert reason_to_reject_data([], []) is None
    assert reason_to_reject_data([None, 0.0, MAX_NORM], [0.0, 0.0, MAX_NORM]) is None
