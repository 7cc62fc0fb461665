"""``python -m gradientmail.doctor.racer``: one process of a race, driven over its pipes.

It prints ``ready``; for each line it reads, which is a key, it races its tasks for that key and
prints what each was told. Arguments: store URL, client, number of tasks.
"""

import asyncio
import json
import sys
from typing import cast

from gradientmail.clock import SystemClock, system_random
from gradientmail.doctor.racing import race
from gradientmail.errors import StoreError
from gradientmail.store.url import StoreClient, open_client


async def _run(url: str, client: StoreClient, creators: int) -> None:
    rng = system_random()
    store = open_client(url, clock=SystemClock(), client=client)
    try:
        await store.read("doctor-warms-up")
        _say("ready")
        while key := (await asyncio.to_thread(sys.stdin.readline)).strip():
            attempts = await race(store, key, creators, rng)
            _say(json.dumps([[a.body, a.outcome and a.outcome.value] for a in attempts]))
    finally:
        await store.close()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Race until the pipe closes."""
    url, client, creators = sys.argv[1:]
    try:
        asyncio.run(_run(url, cast("StoreClient", client), int(creators)))
    except StoreError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
