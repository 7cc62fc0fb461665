"""Typed records over a store: what is there is found, what is garbage is told apart."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.errors import FormatVersionError, RecordError, RunNotFoundError
from gradientmail.mailbox import HINT_LIMIT_BYTES, Mailbox
from gradientmail.records import keys
from gradientmail.records.canonical import MAX_RECORD_BYTES, digest_of, encode
from gradientmail.records.commit import RoundRecord
from gradientmail.records.control import Boundary, Stop
from gradientmail.records.head import Head
from gradientmail.records.lease import Beat, Term
from gradientmail.store.base import Created
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore
from tests.records.golden import COMMIT, EMPTY_COMMIT, MANIFEST, NONCE, PRESENCE

T = TypeVar("T")

GARBAGE = [b"", b"{}", b"null", b"<html>", b"\x80\x04.", encode(MANIFEST)[:-1], encode(COMMIT)]
HEAD = Head(run="r1", term=3, closer="c-1", versions=(7, 6))
TERM = Term(run="r1", term=3, closer="c-1", nonce=NONCE)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def version(number: int, fragment: int = 0) -> RoundRecord:
    return msgspec.structs.replace(EMPTY_COMMIT, fragment=fragment, version=number)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox(MemoryStore())


def put(mailbox: Mailbox, key: str, data: bytes = b"") -> None:
    run(mailbox.store.put(key, [data]))


# -- the manifest ---------------------------------------------------------------------------


def test_a_url_without_a_run_is_told_so(mailbox: Mailbox) -> None:
    with pytest.raises(RunNotFoundError, match="gradientmail init"):
        run(mailbox.manifest())


def test_the_manifest_comes_with_the_digest_of_its_bytes(mailbox: Mailbox) -> None:
    assert run(mailbox.create_manifest(MANIFEST)) is Created.CREATED
    assert run(mailbox.manifest()) == (MANIFEST, digest_of(encode(MANIFEST)))


def test_a_run_is_created_once(mailbox: Mailbox) -> None:
    run(mailbox.create_manifest(MANIFEST))
    other = msgspec.structs.replace(MANIFEST, run="r2")
    assert run(mailbox.create_manifest(other)) is Created.EXISTS
    assert run(mailbox.manifest())[0] == MANIFEST


@pytest.mark.parametrize("data", GARBAGE)
def test_a_damaged_manifest_is_an_error_with_its_key(mailbox: Mailbox, data: bytes) -> None:
    put(mailbox, keys.MANIFEST, data)
    with pytest.raises(RecordError, match=r"key='manifest.json'"):
        run(mailbox.manifest())


def test_a_run_of_another_format_is_refused_naming_both(mailbox: Mailbox) -> None:
    put(mailbox, keys.MANIFEST, encode(MANIFEST).replace(b"manifest/1", b"manifest/2"))
    with pytest.raises(FormatVersionError, match=r"'manifest/2'.*'manifest/1'"):
        run(mailbox.manifest())


def test_a_huge_foreign_object_is_not_read_whole() -> None:
    mailbox = Mailbox(MeteredStore(MemoryStore(), meter := Meter()))
    put(mailbox, keys.MANIFEST, bytes(2 * MAX_RECORD_BYTES))
    with pytest.raises(RecordError, match="at most"):
        run(mailbox.manifest())
    assert meter.down_bytes == 2 * (MAX_RECORD_BYTES + 1)


# -- commits --------------------------------------------------------------------------------


def test_a_commit_comes_with_the_digest_of_its_bytes(mailbox: Mailbox) -> None:
    assert run(mailbox.commit(1, 7)) is None
    assert run(mailbox.create_commit(COMMIT)) is Created.CREATED
    assert run(mailbox.commit(1, 7)) == (COMMIT, digest_of(encode(COMMIT)))
    assert run(mailbox.commit(0, 7)) is None


def test_a_round_is_closed_once(mailbox: Mailbox) -> None:
    run(mailbox.create_commit(COMMIT))
    late = msgspec.structs.replace(COMMIT, closer="c-2")
    assert run(mailbox.create_commit(late)) is Created.EXISTS
    assert run(mailbox.commit(1, 7)) == (COMMIT, digest_of(encode(COMMIT)))


@pytest.mark.parametrize("data", [*GARBAGE[:-1], encode(MANIFEST)])
def test_a_garbage_commit_is_an_error_with_its_key(mailbox: Mailbox, data: bytes) -> None:
    put(mailbox, keys.commit(0, 1), data)
    with pytest.raises(RecordError, match=r"key='commits/0000/0000000001.json'"):
        run(mailbox.newest_commit(0))


def test_a_commit_under_anothers_key_is_an_error_naming_both(mailbox: Mailbox) -> None:
    put(mailbox, keys.commit(0, 3), encode(COMMIT))
    with pytest.raises(RecordError, match=r"holds version 7 of fragment 1.*0000000003"):
        run(mailbox.commit(0, 3))


def looked_up(newest: int, hint: int) -> tuple[int, int]:
    """Return the version that ``newest_commit`` finds, and the reads it takes."""
    store = MemoryStore()
    mailbox = Mailbox(MeteredStore(store, meter := Meter()))

    async def search() -> int:
        for number in range(1, newest + 1):
            await store.create(keys.commit(0, number), encode(version(number)))
        found = await mailbox.newest_commit(0, hint)
        return found[0].version if found else 0

    return run(search()), meter.calls["read"]


@given(newest=st.integers(0, 40), hint=st.integers(0, 90))
def test_the_newest_commit_is_found_from_any_hint_in_few_reads(newest: int, hint: int) -> None:
    found, reads = looked_up(newest, hint)
    assert found == newest
    distance = newest - hint if hint <= newest else newest
    assert reads <= 2 + 2 * (distance + 1).bit_length()


@pytest.mark.parametrize(("newest", "hint", "reads"), [(0, 0, 1), (1, 1, 2), (1000, 1000, 2)])
def test_the_right_hint_takes_two_reads_and_a_new_run_one(
    newest: int, hint: int, reads: int
) -> None:
    assert looked_up(newest, hint) == (newest, reads)


@pytest.mark.parametrize("hint", [0, 1, 500, 999, 1001, 10**9])
def test_a_bad_hint_costs_a_logarithm(hint: int) -> None:
    found, reads = looked_up(1000, hint)
    assert found == 1000
    assert reads <= 22


# -- the lease ------------------------------------------------------------------------------


def test_terms_are_taken_once_and_the_highest_is_found(mailbox: Mailbox) -> None:
    assert run(mailbox.newest_term()) == 0
    assert run(mailbox.create_term(TERM)) is Created.CREATED
    rival = msgspec.structs.replace(TERM, closer="c-2")
    assert run(mailbox.create_term(rival)) is Created.EXISTS
    run(mailbox.create_term(msgspec.structs.replace(TERM, term=12)))
    assert run(mailbox.newest_term()) == 12
    assert run(mailbox.newest_term(after=3)) == 12
    assert run(mailbox.newest_term(after=12)) == 12


def test_foreign_objects_among_the_terms_are_not_terms(mailbox: Mailbox) -> None:
    run(mailbox.create_term(TERM))
    run(mailbox.put_beat(Beat(term=9, closer="c-1", count=1)))
    for foreign in ("terms/99.json", "terms/0000000099.json.bak", "terms/x", "terms/a/b"):
        put(mailbox, foreign)
    assert run(mailbox.newest_term()) == 3


def test_a_beat_is_overwritten_by_its_holder(mailbox: Mailbox) -> None:
    assert run(mailbox.beat(3)) is None
    for count in (1, 2):
        run(mailbox.put_beat(Beat(term=3, closer="c-1", count=count)))
    assert run(mailbox.beat(3)) == Beat(term=3, closer="c-1", count=2)


# -- hints and presence ---------------------------------------------------------------------


def test_hints_and_presence_are_overwritten_by_their_owner(mailbox: Mailbox) -> None:
    assert run(mailbox.head()) is None
    assert run(mailbox.presence("alice")) is None
    for beats in (1, 2):
        presence = msgspec.structs.replace(PRESENCE, count=beats)
        run(mailbox.put_presence(presence))
        run(mailbox.put_head(msgspec.structs.replace(HEAD, term=beats)))
    assert run(mailbox.presence("alice")) == presence
    assert run(mailbox.head()) == msgspec.structs.replace(HEAD, term=2)


@pytest.mark.parametrize("data", [*GARBAGE, bytes(HINT_LIMIT_BYTES + 1)])
def test_what_nothing_depends_on_may_be_unreadable(mailbox: Mailbox, data: bytes) -> None:
    for key in (keys.HEAD, keys.beat(3), keys.learner("alice")):
        put(mailbox, key, data)
    assert run(mailbox.head()) is None
    assert run(mailbox.beat(3)) is None
    assert run(mailbox.presence("alice")) is None


def test_learners_are_listed_by_name_and_foreign_objects_are_not(mailbox: Mailbox) -> None:
    assert run(mailbox.learners()) == {}
    for name in ("bob", "alice"):
        run(mailbox.put_presence(msgspec.structs.replace(PRESENCE, learner=name)))
    for foreign in ("learners/x", "learners/-.json", "learners/a/b.json", "learners.json"):
        put(mailbox, foreign)
    found = run(mailbox.learners())
    assert list(found) == ["alice", "bob"]
    before = found["bob"].tag
    run(mailbox.put_presence(msgspec.structs.replace(PRESENCE, learner="bob", count=99)))
    assert run(mailbox.learners())["bob"].tag != before, "a beat shows in a listing"


# -- control --------------------------------------------------------------------------------


def test_a_stop_is_asked_for_once(mailbox: Mailbox) -> None:
    assert run(mailbox.stop_reason()) is None
    stop = Stop(run="r1", reason="enough", nonce=NONCE)
    assert run(mailbox.create_stop(stop)) is Created.CREATED
    assert run(mailbox.create_stop(stop)) is Created.EXISTS
    assert run(mailbox.stop_reason()) == "enough"


def test_boundaries_only_rise_whatever_lies_between_them(mailbox: Mailbox) -> None:
    assert run(mailbox.newest_boundary(1)) == -1
    for number in (0, 4, 2):
        boundary = Boundary(run="r1", fragment=1, version=number, nonce=NONCE)
        assert run(mailbox.create_boundary(boundary)) is Created.CREATED
        assert run(mailbox.create_boundary(boundary)) is Created.EXISTS
    for foreign in ("swept/0001/9.json", "swept/0001/0000000009.jsonl", "swept/0002/x"):
        put(mailbox, foreign)
    assert run(mailbox.newest_boundary(1)) == 4
    assert run(mailbox.newest_boundary(2)) == -1


def test_a_consoles_folder_markers_are_no_objects_of_a_run() -> None:
    store = MemoryStore()
    for folder in (keys.TERMS, keys.LEARNERS, keys.boundaries_of(0), keys.mail_of(0)):
        store._objects[folder] = b""
    mailbox = Mailbox(store)
    assert run(mailbox.newest_term()) == 0
    assert run(mailbox.learners()) == {}
    assert run(mailbox.newest_boundary(0)) == -1
