"""The closer: holds the lease, closes rounds of every fragment, tells learners where to look.

    campaigning -- term created --> serving -- a newer term, or no renewal --> campaigning
    serving     -- last round closed, or stopped and every learner gone ----> done
    any         -- request_stop ---------------------------------------------> lease released

Everything it knows is in the store: it may be killed at any instant, and the next one goes on.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from os import PathLike, fspath
from pathlib import Path
from typing import TypeVar

from gradientmail.clock import Clock, SystemClock, fresh_nonce, system_random
from gradientmail.closer.desk import Desk
from gradientmail.closer.fleet import Fleet
from gradientmail.closer.lease import Lease, SteppedDown
from gradientmail.closer.scratch import scratch_directory
from gradientmail.closer.spool import Spool
from gradientmail.closer.term import TermOfOffice
from gradientmail.computing import computing_threads
from gradientmail.config import NodeSettings, checked
from gradientmail.errors import SettingsError
from gradientmail.logs import get_logger
from gradientmail.names import default_name, require_name
from gradientmail.run import Run, open_run, start_warming
from gradientmail.store.base import Store
from gradientmail.store.local import Offload
from gradientmail.store.url import open_store
from gradientmail.tasks import persistently, race

MOST_THREADS = 8
"""Fragments worked on at the same time, where there are as many cores."""

T = TypeVar("T")


class Closer:
    """Closes the rounds of the run at ``url``; any number may run, one at a time does the work.

    Args:
        url: The run.
        node: ``name``, ``spool_dir``, ``store_client`` and ``retry_deadline_s`` are used.

    Raises:
        RunNotFoundError, StoreError, RecordError: from ``run``; the message says what to change.

    Example:
        >>> gm.Closer("s3://bucket/run").run(until_done=True)
    """

    def __init__(
        self,
        url: str | PathLike[str],
        *,
        node: NodeSettings | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._node = checked(node)
        self._clock = clock or SystemClock()
        self._rng = rng or system_random()
        given = self._node.name
        self._name = require_name(given) if given else default_name("closer", self._rng)
        self._url = fspath(url)
        self._asked_to_stop = False
        self._stop: Callable[[], object] = lambda: None

    def run(self, *, until_done: bool = False) -> None:
        """Close rounds until told to stop; with ``until_done``, until the run has ended too."""
        asyncio.run(self.serve(until_done=until_done))

    def request_stop(self) -> None:
        """End ``run`` soon, the lease released; from any thread or a signal handler."""
        self._asked_to_stop = True
        self._stop()

    async def serve(self, *, until_done: bool = False) -> None:
        """See ``run``."""
        store = open_store(
            self._url,
            clock=self._clock,
            rng=self._rng,
            client=self._node.store_client,
            deadline_s=self._node.retry_deadline_s,
        )
        serving = asyncio.ensure_future(self._serve(store, until_done=until_done))
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(serving.cancel)
        if self._asked_to_stop:
            self._stop()
        try:
            await serving
        except asyncio.CancelledError:
            if not serving.cancelled():
                raise
        finally:
            self._stop = lambda: None
            await store.close()

    async def _serve(self, store: Store, *, until_done: bool) -> None:
        run = await open_run(store)
        _require_closed(run)
        start_warming(run, get_logger("gradientmail.closer", run=run.name, closer=self._name))
        spool_dir = Path(self._node.spool_dir) if self._node.spool_dir else None
        with (
            scratch_directory(spool_dir) as spool,
            computing_threads(min(MOST_THREADS, os.cpu_count() or 1)) as offload,
        ):
            service = Service(
                run,
                name=self._name,
                clock=self._clock,
                rng=self._rng,
                offload=offload,
                spool=Spool(spool, store),
            )
            await service.run(until_done=until_done)


def _require_closed(run: Run) -> None:
    exchange = run.manifest.settings.exchange
    if exchange != "closer":
        raise SettingsError(
            f"this run has exchange = {exchange!r}: its learners need no closer, start none"
        )


class Service:
    """One closer's process over an open run: terms, one after another."""

    def __init__(
        self,
        run: Run,
        *,
        name: str,
        clock: Clock,
        rng: random.Random,
        offload: Offload,
        spool: Spool,
    ) -> None:
        settings = run.manifest.settings
        self._run, self._clock, self._rng = run, clock, rng
        self._offload, self._spool, self._name = offload, spool, name
        self._log = get_logger("gradientmail.closer", run=run.name, closer=name)
        self._fleet = Fleet(run.mailbox, clock, run=run.name, presence_s=settings.presence_s)
        self._lease = Lease(
            run.mailbox, clock, self._log, run=run.name, name=name, lease_s=settings.lease_s
        )

    async def run(self, *, until_done: bool) -> None:
        """Campaign and serve until the run is done; the lease is released on the way out."""
        try:
            while await self._term_is_lost(until_done=until_done):
                pass
        finally:
            if self._lease.term:
                await self._lease.release()
                self._log.info("released the lease")

    async def _term_is_lost(self, *, until_done: bool) -> bool:
        """Campaign for a term and serve it; False when there is nothing left to close."""
        await self._persist(lambda: self._lease.acquire(fresh_nonce(self._rng)))
        try:
            await race(self._serve(until_done=until_done), self._lease.keep())
        except SteppedDown as exc:
            self._log.warning("stepping down: %s", exc)
            return True
        return False

    async def _serve(self, *, until_done: bool) -> None:
        present = await self._persist(self._run.told_of_all)
        await self._persist(self._fleet.glance)
        await TermOfOffice(self._desk(), self._fleet, present).run(until_done=until_done)

    def _desk(self) -> Desk:
        return Desk(
            run=self._run,
            clock=self._clock,
            rng=self._rng,
            offload=self._offload,
            spool=self._spool,
            log=self._log,
            name=self._name,
            term=self._lease.term,
        )

    async def _persist(self, act: Callable[[], Awaitable[T]]) -> T:
        pause_s = self._run.manifest.settings.poll_s
        return await persistently(act, self._clock, self._log, pause_s=pause_s)
