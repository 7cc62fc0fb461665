"""The doctor passes good stores and names what is wrong with the others."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gradientmail.clock import Clock, SystemClock, system_random
from gradientmail.doctor import Finding, Verdict, probe_store, probing, processes
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.store.url import StoreClient, open_client
from gradientmail.testing import broken
from gradientmail.testing.clock import ManualClock, SkippingClock
from gradientmail.testing.faulty import Fault, FaultyStore, always
from gradientmail.testing.proxy import Wire, creates, fault_proxy
from gradientmail.testing.servers import S3Server


@pytest.fixture(autouse=True)
def _short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes start sooner than four, and SeaweedFS lets losers wait for seconds."""
    monkeypatch.setattr(probing, "PROCESSES", 2)
    monkeypatch.setattr(probing, "RACES", 1)


def probe(
    url: str, client: StoreClient = "obstore", clock: Clock | None = None
) -> dict[str, Finding]:
    probing_it = probe_store(url, clock=clock or SystemClock(), rng=system_random(), client=client)
    return {finding.name: finding for finding in asyncio.run(probing_it)}


def not_passed(findings: dict[str, Finding]) -> dict[str, Verdict]:
    return {
        name: finding.verdict
        for name, finding in findings.items()
        if finding.verdict is not Verdict.PASSED
    }


def keys_left(url: str) -> Sequence[str]:
    async def scenario() -> list[str]:
        store = open_client(url, clock=SystemClock())
        return [entry.key for entry in await store.list("")]

    return asyncio.run(scenario())


def test_a_good_directory_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    findings = probe(str(tmp_path / "runs"))
    assert not_passed(findings) == {}
    assert set(findings) == {"rights", *probing.CHECKS}
    assert "32 creators in 2 processes: one winner" in findings["race"].detail
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_good_server_passes_and_is_left_as_it_was(seaweedfs_url: str) -> None:
    findings = probe(seaweedfs_url)
    assert not_passed(findings) == {}
    assert set(findings) == {"clock", "rights", *probing.CHECKS}
    assert keys_left(seaweedfs_url) == []


def test_a_server_that_ignores_conditions_fails(
    moto_server: S3Server, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(moto_server) as proxy:
        proxy.plan = lambda request: Wire.IGNORE_CONDITION if creates(request) else None
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.server.endpoint)
        findings = probe(moto_url, client="s3fs")
    assert not_passed(findings) == {"create once": Verdict.FAILED, "race": Verdict.FAILED}
    assert "second create of one key succeeded" in findings["create once"].detail
    assert "of 32 creators of one key were told that they won" in findings["race"].detail
    assert "conditional writes" in findings["race"].advice


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "nobody", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_wrong_credentials_are_told_once_and_end_it(
    seaweedfs_url: str, variable: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    findings = probe(seaweedfs_url)
    assert not_passed(findings) == {"rights": Verdict.FAILED}
    assert reason in findings["rights"].advice
    assert set(findings) == {"clock", "rights"}


def test_a_missing_bucket_is_told(seaweedfs_url: str) -> None:
    findings = probe("s3://no-such-bucket/run")
    assert not_passed(findings) == {"rights": Verdict.FAILED}
    assert "create the bucket" in findings["rights"].advice


def test_a_clock_that_is_off_is_told(moto_url: str) -> None:
    a_year_ago = ManualClock(wall_offset_s=SystemClock().wall() - 365 * 86400)
    [clock] = [
        finding
        for finding in asyncio.run(
            probe_store("s3://no-such-bucket/run", clock=a_year_ago, rng=system_random())
        )
        if finding.name == "clock"
    ]
    assert clock.verdict is Verdict.FAILED
    assert "behind the store" in clock.detail


# -- stores that are broken in this process -------------------------------------------------


def probe_instance(store: Store, monkeypatch: pytest.MonkeyPatch) -> dict[str, Finding]:
    monkeypatch.setattr(probing, "open_client", lambda *_args, **_kwargs: store)
    return probe("memory://instance", clock=SkippingClock())


@pytest.mark.parametrize(
    ("store", "name"),
    [
        (broken.CreateOverwrites, "create once"),
        (broken.CreateLooksThenWrites, "race"),
        (broken.RangeIsInclusive, "ranges"),
        (broken.FetchDigestsTheKey, "throughput"),
        (broken.PutKeepsTheFirst, "overwrite"),
        (broken.DeleteTakesOne, "delete"),
    ],
)
def test_a_broken_promise_is_found(
    store: type[MemoryStore], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in not_passed(probe_instance(store(), monkeypatch))


def test_objects_that_do_not_appear_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class ListsNothing(MemoryStore):
        async def list(self, prefix: str, after: str = "") -> list:
            return []

    findings = probe_instance(ListsNothing(), monkeypatch)
    assert not_passed(findings) == {"visibility": Verdict.FAILED}
    assert "does not appear in the listing" in findings["visibility"].detail


@pytest.mark.parametrize(
    ("operation", "verdict"),
    [
        ("delete", Verdict.WARNED),
        ("list", Verdict.FAILED),
        ("read", Verdict.FAILED),
        ("create", Verdict.FAILED),
        ("put", Verdict.FAILED),
    ],
)
def test_what_the_credentials_may_not_do_is_found(
    operation: str, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FaultyStore(MemoryStore(), always(operation, Fault.DENY))
    rights = probe_instance(store, monkeypatch)["rights"]
    assert rights.verdict is verdict
    named = {"put": "overwrite"}.get(operation, operation)
    assert f"may not {named}" in rights.detail


def test_a_store_that_never_answers_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FaultyStore(MemoryStore(), always("read", Fault.NOT_APPLIED))
    findings = probe_instance(store, monkeypatch)
    assert not_passed(findings) == {"rights": Verdict.FAILED}
    assert "no definite answer in 30 s" in findings["rights"].detail


def test_a_racing_process_that_dies_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")
    dying.chmod(0o755)
    monkeypatch.setattr(processes.sys, "executable", str(dying))
    findings = probe(str(tmp_path / "run"))
    assert not_passed(findings) == {"race": Verdict.FAILED}
    assert "a racing process ended: no such module" in findings["race"].detail
    assert list((tmp_path / "run").iterdir()) == []
