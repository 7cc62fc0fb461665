"""Each planted bug is found within this many seeds; what is harmless is not."""

import pytest

from gradientmail.simulation.checking import judged_seed
from gradientmail.simulation.planted import BUGS, HARMLESS, planted

WITHIN = {
    "commit-by-overwrite": ("rivals", 4),
    "timeout-is-failure": ("rivals", 3),
    "exists-is-ours": ("rivals", 4),
    "fixed-payload-names": ("rivals", 5),
    "counted-by-key": ("any", 20),
    "no-applied": ("any", 6),
    "carried-though-applied": ("restarts", 3),
    "no-echo": ("restarts", 16),
    "swept-commits": ("any", 4),
    "swept-unreferenced": ("rivals", 15),
    "trusted-head": ("forged-heads", 6),
    "blind-closer": ("left-behind", 25),
}
WITHOUT_LEASE = ("blind-closer",)
"""Where the lease works, this one only costs time."""


def test_every_planted_bug_is_listed():
    assert WITHIN.keys() == BUGS.keys()


@pytest.mark.parametrize("bug", WITHIN)
def test_a_planted_bug_is_found(bug, quiet):
    family, within = WITHIN[bug]
    with planted(bug, *(["no-lease"] if bug in WITHOUT_LEASE else ())):
        assert any(judged_seed(seed, family).wrong for seed in range(within))


@pytest.mark.parametrize("change", HARMLESS)
@pytest.mark.parametrize("family", ["any", "left-behind"])
def test_what_is_harmless_breaks_nothing(change, family, quiet):
    with planted(change):
        for seed in range(4):
            assert not judged_seed(seed, family).wrong, seed
