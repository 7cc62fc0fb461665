"""What all tests share: coroutines as tests, and real S3 servers.

A server is started once a session and only when a test asks; each test has its own prefix.
"""

import asyncio
import inspect
from collections.abc import Iterator

import pytest
from hypothesis import settings

from gradientmail.clock import fresh_nonce, system_random
from gradientmail.testing.servers import S3Server, moto, seaweedfs

# No deadlines: a busy machine is no failure. The same examples each time: a red run is a fault of
# the change it ran on. New examples: scripts/test --hypothesis-profile exploring
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None)
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def seaweedfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS, whose creates are atomic."""
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto's server: the shape of the API."""
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def seaweedfs_url(seaweedfs_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty ``s3://bucket/prefix`` on SeaweedFS, with the environment to reach it."""
    return _fresh_url(seaweedfs_server, monkeypatch)


@pytest.fixture
def moto_url(moto_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty ``s3://bucket/prefix`` on moto, with the environment to reach it."""
    return _fresh_url(moto_server, monkeypatch)


def _fresh_url(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://{server.bucket}/{fresh_nonce(system_random())}"
