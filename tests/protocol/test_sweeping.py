"""The sweep deletes only what no reader can need, and a dead reader cannot stop it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.errors import SettingsError
from gradientmail.protocol.sweeping import NOTHING_SWEPT, Sweeping


def swept(*, head: int, keep: int = 2, pinned: tuple[int, ...] = ()) -> Sweeping:
    return Sweeping(keep=keep, max_pin_s=100.0).observed(now=0.0, head=head, pinned=pinned)


def test_the_newest_versions_are_kept() -> None:
    assert swept(head=9).boundary == 7


def test_a_young_run_is_not_swept() -> None:
    assert swept(head=1).boundary == NOTHING_SWEPT
    assert swept(head=2).boundary == 0


def test_a_reader_holds_its_version_and_all_above() -> None:
    assert swept(head=9, pinned=(8, 4, 6)).boundary == 3
    assert swept(head=9, pinned=(0,)).boundary == NOTHING_SWEPT


def test_a_dead_reader_holds_a_version_for_a_bounded_time() -> None:
    sweeping = swept(head=9, pinned=(4,))
    assert sweeping.observed(now=100.0, head=9, pinned=[4]).boundary == 3
    assert sweeping.observed(now=100.1, head=9, pinned=[4]).boundary == 7


def test_a_reader_that_moves_on_is_not_a_dead_one() -> None:
    sweeping = swept(head=9, pinned=(4,)).observed(now=90.0, head=9, pinned=[5])
    assert sweeping.observed(now=150.0, head=9, pinned=[5]).boundary == 4


def test_a_reader_that_goes_back_and_forth_holds_nothing_for_longer() -> None:
    sweeping = swept(head=9, pinned=(4,))
    for now in range(10, 120, 10):
        sweeping = sweeping.observed(now=float(now), head=9, pinned=[0 if now % 20 else 4])
    assert sweeping.boundary == 7


def test_a_reader_of_what_may_be_gone_holds_nothing() -> None:
    assert swept(head=9).observed(now=1.0, head=12, pinned=[7]).boundary == 10


def test_the_boundary_never_moves_back() -> None:
    sweeping = swept(head=9)
    assert sweeping.observed(now=1.0, head=9, pinned=[2]).boundary == 7
    assert sweeping.observed(now=1.0, head=5, pinned=[]).boundary == 7


def test_a_payload_that_a_newer_record_names_is_kept() -> None:
    """Version 8 was an empty round: its record names the payloads stored under version 5."""
    listing = [(4, "old"), (5, "reused"), (5, "orphan"), (7, "under"), (8, "above")]
    assert swept(head=9).payloads(listing, referenced={"reused", "above"}) == (
        "old",
        "orphan",
        "under",
    )


def test_mail_under_the_boundary_goes() -> None:
    assert swept(head=9).mail([(5, "a"), (6, "b"), (7, "c"), (9, "d")]) == ("a", "b")


def test_keeping_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 1"):
        Sweeping(keep=0, max_pin_s=100.0)


@given(
    keep=st.integers(1, 5),
    looks=st.lists(
        st.tuples(st.floats(0, 200), st.integers(0, 3), st.lists(st.integers(0, 30), max_size=4)),
        max_size=20,
    ),
    empty=st.sets(st.integers(1, 60)),
)
def test_a_swept_fragment_can_always_be_read_from_every_kept_version(
    keep: int, looks: list[tuple[float, int, list[int]]], empty: set[int]
) -> None:
    """Every version above the boundary still finds its payload, whatever was pinned or empty."""
    payload_of, stored, head, now = {0: 0}, {0}, 0, 0.0
    sweeping = Sweeping(keep=keep, max_pin_s=100.0)
    for elapsed_s, commits, pinned in looks:
        now += elapsed_s
        for version in range(head + 1, head + commits + 1):
            payload_of[version] = payload_of[version - 1] if version in empty else version
            stored.add(payload_of[version])
        head += commits
        sweeping = sweeping.observed(now=now, head=head, pinned=pinned)
        above = range(sweeping.boundary + 1, head + 1)
        referenced = {str(payload_of[version]) for version in above}
        listing = [(version, str(version)) for version in sorted(stored)]
        stored -= {int(key) for key in sweeping.payloads(listing, referenced)}
        assert sweeping.boundary <= head - keep or sweeping.boundary == NOTHING_SWEPT
        assert {payload_of[version] for version in above} <= stored
