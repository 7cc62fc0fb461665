"""The proxy changes what its plan says, and nothing else."""

import asyncio

import pytest

from gradientmail.clock import SystemClock
from gradientmail.store.base import Created
from gradientmail.store.url import StoreClient, open_client
from gradientmail.testing.proxy import Wire, creates, fault_proxy, first
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
