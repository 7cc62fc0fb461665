"""A race of creators for one key: the promise on which all safety stands."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from gradientmail.clock import fresh_nonce
from gradientmail.errors import StoreUnavailableError
from gradientmail.store.base import Created, Store


@dataclass(frozen=True, slots=True)
class Attempt:
    """One creator's bytes and what it was told; ``outcome`` None is UNKNOWN."""

    body: str
    outcome: Created | None


async def race(store: Store, key: str, creators: int, rng: random.Random) -> list[Attempt]:
    """Let ``creators`` tasks create ``key`` at once, each with bytes of its own."""

    async def create(body: str) -> Attempt:
        try:
            return Attempt(body, await store.create(key, body.encode()))
        except StoreUnavailableError:
            return Attempt(body, None)

    return await asyncio.gather(*(create(fresh_nonce(rng)) for _ in range(creators)))


def broken_promise(attempts: Sequence[Attempt], content: bytes | None) -> str | None:
    """Return how the attempts and the object they left contradict the promise; None if not."""
    won = [attempt.body for attempt in attempts if attempt.outcome is Created.CREATED]
    unknown = [attempt.body for attempt in attempts if attempt.outcome is None]
    if len(won) > 1:
        return f"{len(won)} of {len(attempts)} creators of one key were told that they won"
    if not won and not unknown:
        return f"none of {len(attempts)} creators of a new key won"
    if content is None:
        return "an object that was created cannot be read"
    if content.decode(errors="replace") not in (won or unknown):
        return "one creator won, and the object holds another's bytes"
    return None
