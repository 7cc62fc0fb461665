"""The lease in the store: standing for a term, beating while it is held, releasing it."""

import asyncio

from gradientmail.clock import Clock
from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.logs import FieldLogger
from gradientmail.mailbox import Mailbox
from gradientmail.protocol.election import Beat as BeatDue
from gradientmail.protocol.election import Holder, Look, Stand, StepDown, Wait, Watcher
from gradientmail.records.lease import Beat, Term
from gradientmail.store.base import Created


class SteppedDown(Exception):  # noqa: N818 - an outcome, not an error
    """The term is over for us; another closer may hold the next one."""


class Lease:
    """One closer's claim to be the one that closes."""

    def __init__(
        self,
        mailbox: Mailbox,
        clock: Clock,
        log: FieldLogger,
        *,
        run: str,
        name: str,
        lease_s: float,
    ) -> None:
        self._mailbox = mailbox
        self._clock = clock
        self._log = log
        self._run = run
        self._name = name
        self._lease_s = lease_s
        self._count = 0
        self._newest = 0
        self._stood_at = 0.0
        self.term = 0

    async def acquire(self, nonce: str) -> int:
        """Wait until the lease is ours; return the term."""
        watcher = Watcher(lease_s=self._lease_s)
        while True:
            self._newest = await self._mailbox.newest_term(self._newest)
            beat = await self._mailbox.beat(self._newest) if self._newest else None
            look = Look(
                now=self._clock.now(),
                term=self._newest,
                beat=None if beat is None else str(beat.count),
                released=beat is not None and beat.released,
            )
            watcher, decision = watcher.observe(look)
            match decision:
                case Stand(term=term):
                    if await self._stand(term, nonce):
                        return term
                    await self._clock.sleep(self._lease_s / 20)  # our listing may be stale
                case Wait(until=until):
                    await self._clock.sleep(max(0.0, until - self._clock.now()))

    async def keep(self) -> None:
        """Beat until the term is lost.

        Raises:
            SteppedDown: a newer term was taken, or we could not renew ours.
        """
        holder = Holder(term=self.term, lease_s=self._lease_s, renewed_at=self._stood_at)
        while True:
            decision = holder.decide(self._clock.now(), self._newest)
            match decision:
                case StepDown(reason=reason):
                    raise SteppedDown(reason)
                case Wait(until=until):
                    await self._clock.sleep(max(0.0, until - self._clock.now()))
                case BeatDue():
                    began = self._clock.now()
                    if await self._beat_within(self._lease_s / 4):
                        holder = holder.renewed(began)
                    else:
                        await self._clock.sleep(self._lease_s / 20)

    async def release(self) -> None:
        """Say our last word, so that the next closer need not wait."""
        await self._put_beat(released=True)

    async def _stand(self, term: int, nonce: str) -> bool:
        record = Term(run=self._run, term=term, closer=self._name, nonce=nonce)
        self._stood_at = self._clock.now()
        if await self._mailbox.create_term(record) is Created.EXISTS:
            return False
        self.term, self._newest = term, term
        await self._put_beat(released=False)
        self._log.info("holding the lease: term %d", term)
        return True

    async def _beat_within(self, limit_s: float) -> bool:
        """Beat; False when it takes longer: the store retries for longer than a lease lasts."""
        beating = asyncio.create_task(self._beat())
        timer = asyncio.create_task(self._clock.sleep(limit_s))
        try:
            await asyncio.wait([beating, timer], return_when=asyncio.FIRST_COMPLETED)
            return beating.done() and beating.result()
        finally:
            beating.cancel()
            timer.cancel()

    async def _beat(self) -> bool:
        """Renew and look for a newer term; False when the store does not take it."""
        try:
            await self._put_beat(released=False)
            self._newest = await self._mailbox.newest_term(self.term)
        except (StoreUnavailableError, StoreFullError) as exc:
            self._log.warning("could not renew the lease: %s", exc)
            return False
        return True

    async def _put_beat(self, *, released: bool) -> None:
        self._count += 1
        beat = Beat(term=self.term, closer=self._name, count=self._count, released=released)
        await self._mailbox.put_beat(beat)
