"""The suite is proven by what it catches."""

import asyncio
from pathlib import Path

import pytest

from gradientmail.errors import StoreError
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.broken import BROKEN_STORES
from gradientmail.testing.stores import PROMISES, Promise, keep


@pytest.mark.parametrize("broken", BROKEN_STORES, ids=lambda store: store.__name__)
def test_the_suite_catches(broken: type[MemoryStore], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, StoreError, pytest.fail.Exception)):
        asyncio.run(keep(BROKEN_STORES[broken], broken, tmp_path))


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
def test_every_promise_is_broken_by_some_store(promise: Promise) -> None:
    assert promise in BROKEN_STORES.values()
