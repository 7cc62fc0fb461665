"""Every store passes the shipped suite, over the network where it has one."""

import random
from pathlib import Path

import pytest

from gradientmail.clock import SystemClock, fresh_nonce, system_random
from gradientmail.store.base import Store
from gradientmail.store.local import LocalStore
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore
from gradientmail.store.retrying import RetryingStore
from gradientmail.store.url import StoreClient, open_client
from gradientmail.testing.clock import SkippingClock
from gradientmail.testing.faulty import Fault, FaultyStore, randomly
from gradientmail.testing.stores import (
    Promise,
    StoreConformance,
    create_has_one_winner_among_racers,
)


class TestMemory(StoreConformance):
    def make_store(self) -> Store:
        return MemoryStore()


class TestMetered(StoreConformance):
    def make_store(self) -> Store:
        return MeteredStore(MemoryStore(), Meter())


class TestRetryingOverFaults(StoreConformance):
    """A third of all operations fail, some of them after they were applied."""

    def make_store(self) -> Store:
        rng = random.Random(7)
        rates = {Fault.NOT_APPLIED: 0.15, Fault.LOSE_ANSWER: 0.15}
        return RetryingStore(
            FaultyStore(MemoryStore(), randomly(rng, rates)), SkippingClock(), rng
        )


class TestLocalDisk(StoreConformance):
    @pytest.fixture(autouse=True)
    def _in_a_directory_not_yet_made(self, tmp_path: Path) -> None:
        self.root = tmp_path / "not" / "yet"

    def make_store(self) -> Store:
        return LocalStore(self.root)


class TestFsspecMemory(StoreConformance):
    def make_store(self) -> Store:
        return open_client(f"fsspec+memory://{fresh_nonce(system_random())}", clock=SystemClock())


class _OverS3(StoreConformance):
    client: StoreClient
    url: str

    def make_store(self) -> Store:
        return open_client(self.url, clock=SystemClock(), client=self.client)


class _OverSeaweedFS(_OverS3):
    @pytest.fixture(autouse=True)
    def _on_seaweedfs(self, seaweedfs_url: str) -> None:
        self.url = seaweedfs_url


class _OverMoto(_OverS3):
    @pytest.fixture(autouse=True)
    def _on_moto(self, moto_url: str, request: pytest.FixtureRequest) -> None:
        promise: Promise = request.node.callspec.params["promise"]
        if promise is create_has_one_winner_among_racers:
            pytest.skip("moto's server is no judge of atomicity: it looks and then writes")
        self.url = moto_url


class TestObstoreOverSeaweedFS(_OverSeaweedFS):
    client = "obstore"


class TestS3fsOverSeaweedFS(_OverSeaweedFS):
    client = "s3fs"


class TestObstoreOverMoto(_OverMoto):
    client = "obstore"


class TestS3fsOverMoto(_OverMoto):
    client = "s3fs"
