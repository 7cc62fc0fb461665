"""Each fsspec protocol fails in its own way; what reaches us has one meaning."""

import asyncio

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store.fsspec import FsspecStore


@pytest.mark.parametrize(
    ("raised", "meant"),
    [
        (PermissionError("no"), StoreAccessError),
        (NotImplementedError("no xb"), StoreAccessError),
        (TimeoutError("late"), StoreUnavailableError),
        (RuntimeError("anything"), StoreUnavailableError),
    ],
)
def test_a_failure_is_refusal_or_unknown_and_names_the_path(
    raised: Exception, meant: type[Exception]
) -> None:
    class Failing(MemoryFileSystem):
        def open(self, *_: object, **__: object) -> None:
            raise raised

    store = FsspecStore(Failing(skip_instance_cache=True), "/root")
    with pytest.raises(meant, match="/root/a"):
        asyncio.run(store.create("a", b"x"))
