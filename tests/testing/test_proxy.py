"""The proxy changes what its plan says, and nothing else."""

import asyncio

import pytest

from gradientmail.clock import SystemClock, system_random
from gradientmail.store.base import Created
from gradientmail.store.url import StoreClient, open_client, open_store
from gradientmail.testing.proxy import Message, Wire, creates, fault_proxy, first
from gradientmail.testing.servers import S3Server


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_a_server_behind_it_can_be_made_to_ignore_conditions(
    client: StoreClient, moto_server: S3Server, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = open_client(moto_url, clock=SystemClock(), client=client)
        assert await store.create("a", b"one") is Created.CREATED
        assert await store.create("a", b"two") is Created.EXISTS
        proxy.plan = first(1, creates, Wire.IGNORE_CONDITION)
        assert await store.create("a", b"three") is Created.CREATED
        assert await store.read("a") == b"three"
        assert await store.create("a", b"four") is Created.EXISTS
        await store.close()

    with fault_proxy(moto_server) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.server.endpoint)
        asyncio.run(scenario())


def anything(request: Message) -> bool:
    return True


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
@pytest.mark.parametrize(
    "fault", [Wire.CUT_ANSWER, Wire.REPEAT_ANSWER, Wire.REPEAT_REQUEST, Wire.DELAY_ANSWER]
)
def test_answers_that_are_cut_repeated_or_late_change_no_outcome(
    fault: Wire,
    client: StoreClient,
    seaweedfs_server: S3Server,
    seaweedfs_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        store = open_store(seaweedfs_url, clock=SystemClock(), rng=system_random(), client=client)
        proxy.plan = first(1, anything, fault)
        assert await store.create("a", b"one") is Created.CREATED
        proxy.plan = first(1, anything, fault)
        assert await store.create("a", b"two") is Created.EXISTS
        for _ in range(3):
            proxy.plan = first(1, anything, fault)
            assert await store.read("a") == b"one"
            assert await store.read("b") is None
        proxy.plan = first(1, anything, fault)
        assert [entry.key for entry in await store.list("")] == ["a"]
        await store.close()

    with fault_proxy(seaweedfs_server) as proxy:
        proxy.delay_s = 0.05
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.server.endpoint)
        asyncio.run(scenario())
