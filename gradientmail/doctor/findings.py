"""What the doctor found."""

from enum import Enum

import msgspec


class Verdict(Enum):
    """How bad it is."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        name: what was tried or looked at, in two or three words.
        verdict: ``FAILED`` means that no run may live here, or that a run does not go on.
        detail: what was seen, with numbers.
        advice: what to do about it; empty when it passed, or when the detail says it.
        meaning: what follows if nothing is done; empty where the detail says it.
    """

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""
    meaning: str = ""


class Complaint(Exception):  # noqa: N818 - an outcome of a check, not an error
    """Raised inside a check that did not pass."""

    def __init__(self, detail: str, advice: str, verdict: Verdict = Verdict.FAILED) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advice = advice
        self.verdict = verdict
