"""This machine's clock against the store's: S3 refuses signatures more than 15 minutes off."""

import asyncio
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime

from gradientmail.clock import Clock
from gradientmail.doctor.findings import Finding, Verdict
from gradientmail.store.aws import AwsSettings
from gradientmail.store.url import split_url

NAME = "clock"
REFUSED_S = 15 * 60.0
SUSPECT_S = 60.0


async def clock_finding(url: str, clock: Clock) -> Finding | None:
    """Ask the store at ``url`` for the time; None when there is no server to ask."""
    endpoint = _endpoint(url)
    if endpoint is None:
        return None
    before_s = clock.wall()
    date = await asyncio.to_thread(_date, endpoint)
    if date is None:
        return Finding(
            NAME, Verdict.WARNED, f"{endpoint} tells no time", "check that the address is right"
        )
    server_s = parsedate_to_datetime(date).timestamp() + 0.5  # a Date has whole seconds
    return judge(server_s - (before_s + clock.wall()) / 2)


def judge(ahead_s: float) -> Finding:
    """Return what it means that the store's clock is ``ahead_s`` seconds before ours."""
    off_s = abs(ahead_s)
    detail = f"this machine is {off_s:.0f} s {'behind' if ahead_s > 0 else 'ahead of'} the store"
    if off_s > REFUSED_S:
        return Finding(NAME, Verdict.FAILED, detail, "set this machine's clock (NTP)")
    if off_s > SUSPECT_S:
        return Finding(NAME, Verdict.WARNED, detail, "set the clock before it is 15 minutes off")
    return Finding(NAME, Verdict.PASSED, detail)


def _endpoint(url: str) -> str | None:
    scheme, _ = split_url(url)
    if scheme == "gs":
        return "https://storage.googleapis.com"
    if scheme != "s3":
        return None
    settings = AwsSettings.found()
    return settings.endpoint or f"https://s3.{settings.region}.amazonaws.com"


def _date(endpoint: str) -> str | None:
    """Return the ``Date`` of any answer; a refusal has one too."""
    request = urllib.request.Request(endpoint, method="HEAD")  # noqa: S310 - the user's own
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            headers = answer.headers
    except urllib.error.HTTPError as refused:
        headers = refused.headers
    except OSError:
        return None
    return str(date) if (date := headers.get("Date")) else None
