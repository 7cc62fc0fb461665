"""A bucket that deletes by itself is found before it does."""

import asyncio
from typing import Any

import boto3
import pytest

from gradientmail.doctor.findings import Verdict
from gradientmail.doctor.lifecycle import judge_rules, lifecycle_finding, parse_rules
from gradientmail.testing.servers import S3Server


def rule(**fields: Any) -> dict[str, Any]:
    return {"ID": "tidy", "Status": "Enabled", "Expiration": {"Days": 30}, **fields}


def verdict_on(prefix: str, *rules: dict[str, Any]) -> Verdict:
    return judge_rules(parse_rules({"Rules": rules}), prefix).verdict


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"Prefix": ""},
        {"Prefix": "runs/"},
        {"Filter": {"Prefix": "runs/one/fragments/0000/"}},
        {"Filter": {"And": {"Prefix": "runs/one/comm", "ObjectSizeGreaterThan": 1}}},
        {"Expiration": {"Date": "2027-01-01"}},
        {"Expiration": {}, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]},
    ],
)
def test_a_rule_that_takes_what_must_stay_fails(fields: dict[str, Any]) -> None:
    assert verdict_on("runs/one", rule(**fields)) is Verdict.FAILED


@pytest.mark.parametrize(
    "fields",
    [
        {"Status": "Disabled"},
        {"Prefix": "logs/"},
        {"Filter": {"Prefix": "runs/one-more/"}},
        {"Filter": {"Prefix": "runs/one/mail/"}},
        {"Filter": {"Tag": {"Key": "old", "Value": "yes"}}},
        {"Filter": {"And": {"Prefix": "runs/", "Tags": [{"Key": "a", "Value": "b"}]}}},
        {"Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"Expiration": {}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}},
        {"Expiration": {}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
        {"Expiration": {}, "Transitions": [{"Days": 30, "StorageClass": "STANDARD_IA"}]},
    ],
)
def test_a_rule_that_leaves_it_alone_passes(fields: dict[str, Any]) -> None:
    assert verdict_on("runs/one", rule(**fields)) is Verdict.PASSED


def test_a_run_that_is_the_whole_bucket_meets_every_rule_on_its_keys() -> None:
    assert verdict_on("", rule(Prefix="fragments/")) is Verdict.FAILED
    assert verdict_on("", rule(Prefix="logs/")) is Verdict.PASSED


def test_the_rule_and_the_way_out_are_told() -> None:
    found = judge_rules(parse_rules({"Rules": [rule(Prefix="runs/")]}), "runs/one")
    assert found.detail == "'tidy' on runs/ deletes them after 30 days"
    assert "runs/one/" in found.advice
    assert "cannot go on" in found.meaning


def test_a_bucket_is_asked(moto_server: S3Server, moto_url: str) -> None:
    client = boto3.client("s3", endpoint_url=moto_server.endpoint)
    none = asyncio.run(lifecycle_finding(moto_url))
    assert (none.verdict, none.detail) == (Verdict.PASSED, "no rule takes the run's objects")
    rules = [
        {"ID": "eat", "Status": "Enabled", "Expiration": {"Days": 3}, "Filter": {"Prefix": ""}}
    ]
    client.put_bucket_lifecycle_configuration(
        Bucket=moto_server.bucket, LifecycleConfiguration={"Rules": rules}
    )
    try:
        found = asyncio.run(lifecycle_finding(moto_url))
    finally:
        client.delete_bucket_lifecycle(Bucket=moto_server.bucket)
    assert found.verdict is Verdict.FAILED
    assert found.detail == "'eat' on everything deletes them after 3 days"


def test_a_server_that_knows_no_rules_is_told_as_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    found = asyncio.run(lifecycle_finding("s3://bucket/run"))
    assert found.verdict is Verdict.PASSED
    assert found.detail.startswith("not checked: ")


def test_seaweedfs_answers(seaweedfs_url: str) -> None:
    assert asyncio.run(lifecycle_finding(seaweedfs_url)).verdict is Verdict.PASSED


def test_a_directory_has_no_rules() -> None:
    assert "not checked" in asyncio.run(lifecycle_finding("runs/one")).detail
