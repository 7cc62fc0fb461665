"""What the doctor found."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether a run may be created here."""

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried.

    Attributes:
        name: what was tried, in two or three words.
        verdict: ``FAILED`` means that no run may live here.
        detail: what was seen, with numbers.
        advice: what to do about it; empty when it passed, or when the detail says it.
    """

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""


class Complaint(Exception):  # noqa: N818 - an outcome of a check, not an error
    """Raised inside a check that did not pass."""

    def __init__(self, detail: str, advice: str, verdict: Verdict = Verdict.FAILED) -> None:
        super().__init__(detail)
        self.detail = detail
        self.advice = advice
        self.verdict = verdict
