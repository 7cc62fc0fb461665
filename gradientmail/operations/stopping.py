"""Asking a run to end."""

import random

from gradientmail.clock import fresh_nonce
from gradientmail.mailbox import Mailbox
from gradientmail.records.control import Stop
from gradientmail.store.base import Created, Store


async def request_stop(store: Store, reason: str, *, rng: random.Random) -> bool:
    """Ask the run to end after the rounds in flight; False when it was asked before.

    It cannot be taken back: a run that is to go on is a new run that starts from an export.

    Raises:
        RunNotFoundError: there is no run.
    """
    mailbox = Mailbox(store)
    manifest, _ = await mailbox.manifest()
    stop = Stop(run=manifest.run, reason=reason, nonce=fresh_nonce(rng))
    return await mailbox.create_stop(stop) is Created.CREATED
