import pytest

from gradientmail.doctor.racing import Attempt, broken_promise
from gradientmail.store.base import Created

WON = Attempt("a", Created.CREATED)
WON_TOO = Attempt("b", Created.CREATED)
LOST = Attempt("c", Created.EXISTS)
UNKNOWN = Attempt("d", None)


@pytest.mark.parametrize(
    ("attempts", "content"),
    [
        ([WON, LOST], b"a"),
        ([WON, LOST, UNKNOWN], b"a"),
        ([LOST, UNKNOWN], b"d"),
    ],
)
def test_one_winner_whose_bytes_are_there_keeps_the_promise(
    attempts: list[Attempt], content: bytes
) -> None:
    assert broken_promise(attempts, content) is None


@pytest.mark.parametrize(
    ("attempts", "content", "reason"),
    [
        ([WON, WON_TOO, LOST], b"a", "2 of 3 creators"),
        ([LOST, LOST], b"x", "none of 2 creators"),
        ([WON, LOST], b"c", "another's bytes"),
        ([WON, UNKNOWN], b"d", "another's bytes"),
        ([WON, LOST], None, "cannot be read"),
    ],
)
def test_what_contradicts_the_promise_is_said(
    attempts: list[Attempt], content: bytes | None, reason: str
) -> None:
    assert reason in str(broken_promise(attempts, content))
