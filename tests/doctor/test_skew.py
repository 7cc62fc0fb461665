import asyncio

import pytest

from gradientmail.clock import SystemClock
from gradientmail.doctor.findings import Verdict
from gradientmail.doctor.skew import clock_finding, judge


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "words"),
    [
        (0.4, Verdict.PASSED, "0 s"),
        (-59.0, Verdict.PASSED, "59 s ahead of"),
        (61.0, Verdict.WARNED, "61 s behind"),
        (-899.0, Verdict.WARNED, "899 s ahead of"),
        (901.0, Verdict.FAILED, "901 s behind"),
        (-1e6, Verdict.FAILED, "1000000 s ahead of"),
    ],
)
def test_more_than_a_minute_warns_and_a_quarter_of_an_hour_fails(
    ahead_s: float, verdict: Verdict, words: str
) -> None:
    finding = judge(ahead_s)
    assert finding.verdict is verdict
    assert words in finding.detail


def test_a_directory_has_no_clock_to_ask() -> None:
    assert asyncio.run(clock_finding("runs/one", SystemClock())) is None


def test_a_server_that_does_not_answer_is_no_verdict_on_the_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    finding = asyncio.run(clock_finding("s3://bucket/run", SystemClock()))
    assert finding is not None
    assert finding.verdict is Verdict.WARNED
    assert "127.0.0.1:9" in finding.detail
