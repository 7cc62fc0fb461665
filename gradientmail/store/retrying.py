"""The only retry loop: what is UNKNOWN is asked again until the store gives a definite answer.

Waits are drawn evenly from zero to a bound that doubles (Brooker, "Exponential Backoff And
Jitter", AWS 2015), and end at a deadline. Time and chance are the caller's, so the loop runs
unchanged in a simulator. Other errors than ``StoreUnavailableError`` pass at once.
"""

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, RetryError, retry_if_exception_type

from gradientmail.clock import Clock
from gradientmail.errors import StoreUnavailableError
from gradientmail.store.base import Created, Entry, Fetched, Store

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0
DEADLINE_S = 120.0

QUIET_ATTEMPTS = 3
"""A single failure is nothing to a person; that many in a row are."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class RetryingStore(Store):
    """``inner``, asked again for at most ``deadline_s`` seconds from the start of each operation.

    Raises:
        StoreUnavailableError: from any operation, when the deadline passed without an answer.
    """

    def __init__(
        self, inner: Store, clock: Clock, rng: random.Random, *, deadline_s: float = DEADLINE_S
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self._deadline_s = deadline_s

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``. An object that holds ``data`` is ours: an answer was lost."""
        return await self._until_answered(f"create {key!r}", partial(self._create, key, data))

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await self._until_answered(f"put {key!r}", partial(self._inner.put, key, buffers))

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """See ``Store.read``."""
        return await self._until_answered(
            f"read {key!r}", partial(self._inner.read, key, start, end)
        )

    async def fetch(self, key: str, path: Path, *, limit_bytes: int) -> Fetched | None:
        """See ``Store.fetch``."""
        fetch = partial(self._inner.fetch, key, path, limit_bytes=limit_bytes)
        return await self._until_answered(f"fetch {key!r}", fetch)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        return await self._until_answered(
            f"list {prefix!r}", partial(self._inner.list, prefix, after)
        )

    async def delete(self, keys: Iterable[str]) -> None:
        """See ``Store.delete``."""
        keys = list(keys)
        await self._until_answered(f"delete {len(keys)} keys", partial(self._inner.delete, keys))

    async def close(self) -> None:
        """See ``Store.close``."""
        await self._inner.close()

    async def _create(self, key: str, data: bytes) -> Created:
        """Create once, and tell our own object of an earlier attempt from another's."""
        if await self._inner.create(key, data) is Created.CREATED:
            return Created.CREATED
        found = await self._inner.read(key)
        if found is None:
            raise StoreUnavailableError(f"{key!r} exists and cannot be read yet")
        return Created.CREATED if found == data else Created.EXISTS

    async def _until_answered(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try once; only a failure is worth the loop, which costs as much as a small operation."""
        deadline = self._clock.now() + self._deadline_s
        try:
            return await attempt()
        except StoreUnavailableError as error:
            failed = [error]

        async def after_the_first() -> T:
            if failed:
                raise failed.pop()
            return await attempt()

        return await self._repeat(what, after_the_first, deadline)

    async def _repeat(self, what: str, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        def wait(state: RetryCallState) -> float:
            bound = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (state.attempt_number - 1))
            return min(self._rng.uniform(0, bound), max(0.0, deadline - self._clock.now()))

        # One object a call: tenacity keeps the state of its iteration in it.
        retrying = AsyncRetrying(
            sleep=self._clock.sleep,
            wait=wait,
            stop=lambda _: self._clock.now() >= deadline,
            retry=retry_if_exception_type(StoreUnavailableError),
            before_sleep=lambda state: _report(what, state),
        )
        try:
            return await retrying(attempt)
        except RetryError as error:
            last = error.last_attempt
            raise StoreUnavailableError(
                f"{what}: no definite answer in {self._deadline_s:g} s and "
                f"{last.attempt_number} attempts; the last one: {last.exception()}"
            ) from last.exception()


def _report(what: str, state: RetryCallState) -> None:
    if state.attempt_number == QUIET_ATTEMPTS and state.outcome is not None:
        log.warning("no answer yet, still trying to %s: %s", what, state.outcome.exception())
