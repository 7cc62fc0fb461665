"""Would the bucket's own lifecycle rules delete what a run needs?"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from gradientmail.doctor.findings import Finding, Verdict
from gradientmail.store.aws import AwsSettings
from gradientmail.store.url import split_url

NAME: Final = "lifecycle"
NO_RULES: Final = "NoSuchLifecycleConfiguration"
ASLEEP: Final = frozenset(("GLACIER", "DEEP_ARCHIVE"))
"""Storage classes whose objects must be restored before they can be read."""

NEEDED: Final = ("manifest.json", "commits/", "fragments/", "terms/", "swept/", "control/")
"""What must stay. Mail, signs of life and probes are of use for a round or two."""


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """What one enabled rule does to objects whose names start with ``prefix``."""

    name: str
    prefix: str
    does: str


async def lifecycle_finding(url: str) -> Finding:
    """Ask the bucket of ``url`` for its rules and judge them."""
    scheme, rest = split_url(url)
    if scheme != "s3":
        return Finding(NAME, Verdict.PASSED, f"not checked: {scheme}:// has no such rules to ask")
    bucket, _, prefix = rest.partition("/")
    try:
        answer = await asyncio.to_thread(_configuration, bucket)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code != NO_RULES:
            return Finding(NAME, Verdict.PASSED, f"not checked: the server says {code or error}")
        answer = {}
    except BotoCoreError as error:
        return Finding(NAME, Verdict.PASSED, f"not checked: {error}")
    return judge_rules(parse_rules(answer), prefix.strip("/"))


def _configuration(bucket: str) -> Mapping[str, Any]:
    settings = AwsSettings.found()
    client = botocore.session.Session().create_client(
        "s3",
        region_name=settings.region,
        endpoint_url=settings.endpoint,
        config=Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2}),
    )
    answer: Mapping[str, Any] = client.get_bucket_lifecycle_configuration(Bucket=bucket)
    return answer


def parse_rules(answer: Mapping[str, Any]) -> list[LifecycleRule]:
    """Return the enabled rules that take objects away which have no tags, as ours have none."""
    rules = []
    for number, rule in enumerate(answer.get("Rules", ()), start=1):
        chosen = rule.get("Filter", {})
        both = chosen.get("And", chosen)
        if rule.get("Status") != "Enabled" or both.get("Tags") or chosen.get("Tag"):
            continue
        prefix = rule.get("Prefix") or both.get("Prefix") or ""
        name = rule.get("ID") or f"rule {number}"
        rules += [LifecycleRule(name, prefix, does) for does in _effects(rule)]
    return rules


def _effects(rule: Mapping[str, Any]) -> Sequence[str]:
    effects, expiration = [], rule.get("Expiration", {})
    if days := expiration.get("Days"):
        effects.append(f"deletes them after {days} days")
    if date := expiration.get("Date"):
        effects.append(f"deletes them at {date}")
    classes = [move.get("StorageClass") for move in rule.get("Transitions", ())]
    asleep = (name for name in classes if name in ASLEEP)
    return [*effects, *(f"moves them to {name}, where they cannot be read" for name in asleep)]


def judge_rules(rules: Sequence[LifecycleRule], prefix: str) -> Finding:
    """Return what ``rules`` mean for a run under ``prefix`` of the bucket, which may be empty."""
    root = f"{prefix}/" if prefix else ""
    eating = [rule for rule in rules if any(_meet(rule.prefix, root + key) for key in NEEDED)]
    if not eating:
        harmless = f"; {len(rules)} touch nothing of it that must stay" if rules else ""
        return Finding(NAME, Verdict.PASSED, f"no rule takes the run's objects{harmless}")
    told = "; ".join(
        f"{rule.name!r} on {rule.prefix or 'everything'} {rule.does}" for rule in eating
    )
    return Finding(
        NAME,
        Verdict.FAILED,
        told,
        f"give these rules a prefix outside {root or 'the bucket'}, or none but {root}mail/",
        "a run that loses payloads or commits cannot go on; its own sweep keeps it small",
    )


def _meet(one: str, other: str) -> bool:
    """Whether some name starts with both."""
    return one.startswith(other) or other.startswith(one)
