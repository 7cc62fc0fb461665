"""A store opened for one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gradientmail.clock import SystemClock, system_random
from gradientmail.config import NodeSettings
from gradientmail.store.base import Store
from gradientmail.store.url import open_store

T = TypeVar("T")


def with_store(url: str, node: NodeSettings, act: Callable[[Store], Awaitable[T]]) -> T:
    """Return what ``act`` makes of the store at ``url``, which is closed after it."""

    async def acted() -> T:
        store = open_store(
            url,
            clock=SystemClock(),
            rng=system_random(),
            client=node.store_client,
            deadline_s=node.retry_deadline_s,
        )
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(acted())
