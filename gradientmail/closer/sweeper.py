"""The sweeper: deletes what no reader can need, behind a boundary it announces first."""

from gradientmail.clock import fresh_nonce
from gradientmail.closer.desk import Desk
from gradientmail.closer.fleet import Fleet
from gradientmail.errors import StoreUnavailableError
from gradientmail.protocol.sweeping import NOTHING_SWEPT, Sweeping
from gradientmail.records import keys
from gradientmail.records.control import Boundary
from gradientmail.run import Version

PIN_PRESENCES = 10
"""How many times ``presence_s`` one reader may hold one version."""


class Sweeper:
    """Sweeps one fragment. A sweep that fails leaves bytes behind, which the next one finds."""

    def __init__(self, desk: Desk, fleet: Fleet, fragment: int) -> None:
        settings = desk.run.manifest.settings
        self._desk = desk
        self._fleet = fleet
        self._fragment = fragment
        self._known = False
        self._sweeping = Sweeping(
            keep=max(settings.keep_versions, settings.max_staleness + 1),
            max_pin_s=PIN_PRESENCES * settings.presence_s,
        )

    async def sweep(self, head: Version) -> None:
        """Delete what the newest version ``head`` makes superfluous; nothing in a retained run.

        Raises:
            StoreUnavailableError: a commit came damaged; a later sweep may know what is needed.
            RecordError: a commit is damaged: until it is mended nothing more is swept.
        """
        if self._desk.run.manifest.settings.retain:
            return
        mailbox, fragment = self._desk.run.mailbox, self._fragment
        if not self._known:
            # No sweeper announces more than that; to believe another one would delete the head.
            boundary = min(
                await mailbox.newest_boundary(fragment), head.number - self._sweeping.keep
            )
            self._sweeping = self._sweeping.from_boundary(boundary)
            self._known = True
        before = self._sweeping.boundary
        pinned = self._fleet.pinned(fragment)
        now = self._desk.clock.now()
        self._sweeping = self._sweeping.observed(now=now, head=head.number, pinned=pinned)
        if self._sweeping.boundary in (before, NOTHING_SWEPT):
            return
        await self._announce()
        store, referenced = mailbox.store, await self._referenced(head)
        payloads = [
            (parsed[1], entry.key)
            for entry in await store.list(keys.payloads_of(fragment))
            if (parsed := keys.parse_payload(entry.key))
        ]
        mail = [
            (letter.base, entry.key)
            for entry in await store.list(keys.mail_of(fragment))
            if (letter := keys.parse_mail(entry.key))
        ]
        doomed = (*self._sweeping.payloads(payloads, referenced), *self._sweeping.mail(mail))
        await store.delete(doomed)
        extra = {"fragment": fragment, "version": self._sweeping.boundary}
        self._desk.log.debug("swept %d objects", len(doomed), extra=extra)

    async def _announce(self) -> None:
        boundary = Boundary(
            run=self._desk.run.name,
            fragment=self._fragment,
            version=self._sweeping.boundary,
            nonce=fresh_nonce(self._desk.rng),
        )
        await self._desk.run.mailbox.create_boundary(boundary)

    async def _referenced(self, head: Version) -> set[str]:
        """Return the payloads that the versions above the boundary name.

        Each commit has the digest of the one before: one that was damaged on its way, and names
        another payload than it does in the store, is not believed.
        """
        referenced, above = {ref.key for ref in head.payloads.values()}, head
        for number in range(head.number - 1, self._sweeping.boundary, -1):
            version = await self._desk.run.version(self._fragment, number)
            parent = above.record.parent if above.record else None
            if version is None or version.digest != parent:
                raise StoreUnavailableError(f"version {number} did not come as it was committed")
            referenced |= {ref.key for ref in version.payloads.values()}
            above = version
        return referenced
