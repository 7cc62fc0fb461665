"""A run of which everything was kept must be derived in full."""

from gradientmail.chaos.judging import complaints
from gradientmail.operations.verified import Fault, FragmentVerified, NotDerived, Verified


def verified(*faults: Fault, version: int = 3, missed: tuple[NotDerived, ...] = ()) -> Verified:
    one = FragmentVerified(
        fragment=0, version=version, payloads=9, derived=3, empty=0, not_derived=missed
    )
    return Verified(run="run-1", fragments=(one,), faults=faults)


def test_a_sound_run_has_nothing_to_complain_of() -> None:
    assert complaints(verified(), 3) == []


def test_faults_gaps_and_missing_rounds_are_all_wrong() -> None:
    fault = Fault(key="commits/0000/0000000001.json", reason="it is empty")
    missed = NotDerived(first=1, last=2, reason="swept")
    assert complaints(verified(fault, missed=(missed,), version=2), 3) == [
        "commits/0000/0000000001.json: it is empty",
        "fragment 0: versions 1 to 2 not derived: swept",
        "2 rounds are closed, the run was to end after 3",
    ]
