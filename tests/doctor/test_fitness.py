"""``init`` asks this first: no run on a store that breaks ``create``."""

import asyncio
import random
from pathlib import Path

import pytest

from gradientmail.clock import SystemClock, system_random
from gradientmail.doctor import require_fit
from gradientmail.errors import StoreAccessError, StoreUnavailableError, StoreUnfitError
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.store.url import open_store
from gradientmail.testing import broken
from gradientmail.testing.faulty import Fault, FaultyStore, always
from gradientmail.testing.proxy import Wire, creates, fault_proxy
from gradientmail.testing.servers import S3Server


def require(store: Store) -> None:
    asyncio.run(require_fit(store, rng=random.Random(1)))


def require_at(url: str) -> None:
    async def scenario() -> None:
        store = open_store(url, clock=SystemClock(), rng=system_random())
        await require_fit(store, rng=system_random())
        assert await store.list("") == []
        await store.close()

    asyncio.run(scenario())


def test_a_good_store_is_fit_and_left_empty(tmp_path: Path, seaweedfs_url: str) -> None:
    require_at(str(tmp_path / "run"))
    require_at("memory://fit")
    require_at(seaweedfs_url)


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        (broken.CreateOverwrites, "created twice"),
        (broken.CreateLooksThenWrites, "8 of 8 creators"),
    ],
)
def test_a_store_that_breaks_create_is_unfit(store: type[MemoryStore], reason: str) -> None:
    with pytest.raises(StoreUnfitError, match=f"{reason}.*gradientmail doctor"):
        require(store())


def test_a_refused_create_that_writes_all_the_same_is_unfit() -> None:
    class WritesAllTheSame(MemoryStore):
        async def create(self, key: str, data: bytes):
            outcome = await super().create(key, data)
            await self.put(key, [data])
            return outcome

    with pytest.raises(StoreUnfitError, match="changed the object"):
        require(WritesAllTheSame())


def test_a_server_that_ignores_conditions_is_unfit(
    moto_server: S3Server, moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(moto_server) as proxy:
        proxy.plan = lambda request: Wire.IGNORE_CONDITION if creates(request) else None
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.server.endpoint)
        with pytest.raises(StoreUnfitError, match="created twice"):
            require_at(moto_url)


def test_a_store_that_refuses_us_says_so() -> None:
    with pytest.raises(StoreAccessError):
        require(FaultyStore(MemoryStore(), always("create", Fault.DENY)))


def test_who_may_not_delete_may_still_create_a_run() -> None:
    require(FaultyStore(MemoryStore(), always("delete", Fault.DENY)))


def test_a_store_that_does_not_answer_is_not_called_unfit() -> None:
    with pytest.raises(StoreUnavailableError):
        require(FaultyStore(MemoryStore(), always("read", Fault.NOT_APPLIED)))
