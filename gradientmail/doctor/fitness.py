"""The quick probe of ``init``: no run is created on a store that breaks ``create``."""

import contextlib
import random

from gradientmail.clock import fresh_nonce
from gradientmail.doctor.racing import broken_promise, race
from gradientmail.errors import StoreError, StoreUnfitError
from gradientmail.store.base import Created, Store

_CREATORS = 8
_ADVICE = "use a store with atomic conditional writes; `gradientmail doctor` tells more"


async def require_fit(store: Store, *, rng: random.Random) -> None:
    """Create a key twice and let eight tasks race for another.

    Raises:
        StoreUnfitError: the store breaks a promise the protocol needs.
        StoreAccessError: the store refuses us.
    """
    prefix = f".doctor/{fresh_nonce(rng)}"
    twice, raced = f"{prefix}/twice", f"{prefix}/race"
    try:
        first = await store.create(twice, b"first")
        second = await store.create(twice, b"second")
        if (first, second) != (Created.CREATED, Created.EXISTS):
            raise StoreUnfitError(f"the store lets a key be created twice; {_ADVICE}")
        if await store.read(twice) != b"first":
            raise StoreUnfitError(f"a create that was refused changed the object; {_ADVICE}")
        attempts = await race(store, raced, _CREATORS, rng)
        if reason := broken_promise(attempts, await store.read(raced)):
            raise StoreUnfitError(f"{reason}; {_ADVICE}")
    finally:
        with contextlib.suppress(StoreError):  # who may not delete may still create
            await store.delete([twice, raced])
