"""Keys: one for each object, in the order versions have, and foreign names are told apart."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.records import keys
from gradientmail.records.keys import MailKey
from gradientmail.store.base import check_key
from tests.records.golden import MAIL_KEY, NONCE

fragments = st.integers(0, 9998)
versions = st.integers(0, 10**10 - 1)
names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
nonces = st.from_regex(r"\A[0-9a-f]{32}\Z")


def test_the_layout_is_the_documented_one() -> None:
    assert keys.commit(3, 12) == "commits/0003/0000000012.json"
    assert keys.mail(1, 6, "alice", NONCE) == MAIL_KEY
    assert (
        keys.payload(0, 7, NONCE, "outer")
        == f"fragments/0000/0000000007/{NONCE}.outer.safetensors"
    )
    assert keys.term(2) == "terms/0000000002.json"
    assert keys.beat(2) == "terms/0000000002.beat"
    assert keys.learner("alice") == "learners/alice.json"
    assert keys.boundary(3, 4) == "swept/0003/0000000004.json"
    assert (keys.MANIFEST, keys.HEAD, keys.STOP) == (
        "manifest.json",
        "head.json",
        "control/stop.json",
    )


@given(fragments, versions, names, nonces)
def test_what_is_built_is_parsed_back_and_is_a_key_of_any_store(
    fragment: int, version: int, name: str, nonce: str
) -> None:
    mail = check_key(keys.mail(fragment, version, name, nonce))
    assert keys.parse_mail(mail) == MailKey(fragment, version, name, nonce)
    for role in ("params", "outer", "update"):
        payload = check_key(keys.payload(fragment, version, nonce, role))
        assert keys.parse_payload(payload) == (fragment, version)
    term = version % 10**9  # what is above is taken for a foreign object
    assert keys.parse_term(check_key(keys.term(term))) == term
    assert keys.parse_commit(check_key(keys.commit(fragment, version))) == version
    assert keys.parse_boundary(check_key(keys.boundary(fragment, version))) == version
    assert keys.parse_learner(check_key(keys.learner(name))) == name
    check_key(keys.beat(version))


@given(fragments, versions, names, nonces)
def test_every_object_lies_under_the_prefix_it_is_listed_by(
    fragment: int, version: int, name: str, nonce: str
) -> None:
    assert keys.mail(fragment, version, name, nonce).startswith(keys.mail_of(fragment))
    assert keys.payload(fragment, version, nonce, "params").startswith(keys.payloads_of(fragment))
    assert keys.boundary(fragment, version).startswith(keys.boundaries_of(fragment))
    assert keys.commit(fragment, version).startswith(keys.commits_of(fragment))
    assert keys.term(version).startswith(keys.TERMS)
    assert keys.learner(name).startswith(keys.LEARNERS)


@given(fragments, versions, versions, names, nonces)
def test_a_listing_after_mail_before_starts_with_that_base(
    fragment: int, base: int, other: int, name: str, nonce: str
) -> None:
    mail = keys.mail(fragment, other, name, nonce)
    assert (mail > keys.mail_before(fragment, base)) == (other >= base)


@given(st.lists(versions, min_size=2, max_size=2))
def test_keys_sort_as_versions_do(pair: list[int]) -> None:
    first, second = sorted(pair)
    assert keys.commit(0, first) <= keys.commit(0, second)
    assert keys.term(first) <= keys.term(second)


MAIL = keys.mail(0, 7, "alice", NONCE)
PAYLOAD = keys.payload(0, 7, NONCE, "params")
ARABIC_SEVEN = "\u0667"


@pytest.mark.parametrize(
    ("parse", "foreign"),
    [
        (keys.parse_mail, "mail/0000/"),
        (keys.parse_mail, "mail/0000/0000000007/"),
        (keys.parse_mail, MAIL.removesuffix("s")),
        (keys.parse_mail, MAIL + ".tmp"),
        (keys.parse_mail, MAIL + "\n"),
        (keys.parse_mail, "x/" + MAIL),
        (keys.parse_mail, MAIL.replace("0000/", "000/", 1)),
        (keys.parse_mail, MAIL.replace("0000000007", "000000007")),
        (keys.parse_mail, MAIL.replace("0000000007", "00000000007")),
        (keys.parse_mail, MAIL.replace("0000000007", "000000000" + ARABIC_SEVEN)),
        (keys.parse_mail, MAIL.replace("alice", "a.b")),
        (keys.parse_mail, MAIL.replace("alice", "-alice")),
        (keys.parse_mail, MAIL.replace("alice", "a" * 65)),
        (keys.parse_mail, MAIL.replace(NONCE, NONCE.upper())),
        (keys.parse_mail, MAIL.replace(NONCE, NONCE[1:])),
        (keys.parse_mail, MAIL.replace("0000-of-0001", "0001-of-0002")),
        (keys.parse_payload, "fragments/0000/0000000007/"),
        (keys.parse_payload, PAYLOAD.replace("params", "notes")),
        (keys.parse_payload, MAIL),
        (keys.parse_term, "terms/"),
        (keys.parse_term, keys.beat(7)),
        (keys.parse_term, "terms/7.json"),
        (keys.parse_term, f"terms/000000000{ARABIC_SEVEN}.json"),
        (keys.parse_term, "terms/0000000007.json.bak"),
        (keys.parse_term, "terms/9999999999.json"),
        (keys.parse_commit, "commits/0000/"),
        (keys.parse_commit, keys.boundary(0, 7)),
        (keys.parse_boundary, "swept/0000/"),
        (keys.parse_boundary, keys.commit(0, 7)),
        (keys.parse_learner, "learners/"),
        (keys.parse_learner, "learners/.json"),
        (keys.parse_learner, "learners/a/b.json"),
        (keys.parse_learner, "learners/alice.json~"),
        (keys.parse_learner, "learners/alice\n.json"),
    ],
)
def test_a_foreign_object_is_no_record(parse: Callable[[str], object], foreign: str) -> None:
    assert parse(foreign) is None
