"""Typed records over a store: the run's objects by what they mean, not by their bytes."""

from typing import Final, TypeVar

import msgspec

from gradientmail.errors import RecordError, RunNotFoundError
from gradientmail.records import canonical, keys
from gradientmail.records.commit import RoundRecord
from gradientmail.records.control import Boundary, Stop
from gradientmail.records.head import Head
from gradientmail.records.lease import Beat, Term
from gradientmail.records.manifest import Manifest
from gradientmail.records.presence import Presence
from gradientmail.store.base import Created, Entry, Store

R = TypeVar("R", bound=msgspec.Struct)

HINT_LIMIT_BYTES: Final = 1 << 20


class Mailbox:
    """One run's records. ``store`` holds the run's prefix and retries by itself."""

    def __init__(self, store: Store) -> None:
        self.store = store

    # -- the manifest ---------------------------------------------------------------------

    async def manifest(self) -> tuple[Manifest, str]:
        """Return the manifest and its digest, the parent of every version 1.

        Raises:
            RunNotFoundError: there is none: the run was never created, or the URL is wrong.
            RecordError: the bytes are no manifest.
        """
        data, again = await self._read(keys.MANIFEST), await self._read(keys.MANIFEST)
        while data != again:  # damaged on its way, once: everything is built on what is read here
            data, again = again, await self._read(keys.MANIFEST)
        if data is None:
            raise RunNotFoundError("no run here: `gradientmail init` creates one")
        return canonical.decode(Manifest, keys.MANIFEST, data), canonical.digest_of(data)

    async def create_manifest(self, manifest: Manifest) -> Created:
        """Create the run: the last act of ``init``."""
        return await self.store.create(keys.MANIFEST, canonical.encode(manifest))

    # -- commits ---------------------------------------------------------------------------

    async def commit(self, fragment: int, version: int) -> tuple[RoundRecord, str] | None:
        """Return the record of ``version >= 1`` and its digest; None when it is not committed.

        Raises:
            RecordError: the bytes are no commit, or another version's.
        """
        key = keys.commit(fragment, version)
        data = await self._read(key)
        while data is not None:
            try:
                return _commit(data, key, fragment, version), canonical.digest_of(data)
            except RecordError:
                again = await self._read(key)
                if again == data:
                    raise
                data = again  # it was damaged on its way
        return None

    async def create_commit(self, record: RoundRecord) -> Created:
        """Close a round: the one commit point."""
        key = keys.commit(record.fragment, record.version)
        return await self.store.create(key, canonical.encode(record))

    async def newest_commit(self, fragment: int, hint: int = 0) -> tuple[RoundRecord, str] | None:
        """Return the newest commit of ``fragment``; None when it is still at version 0.

        ``hint`` only says where to begin: versions are contiguous and never deleted, so doubling
        steps and then halving find the newest from anywhere in O(log) reads, and from the right
        place in two.
        """
        low, found = 0, None
        if hint > 0 and (found := await self.commit(fragment, hint)):
            low = hint
        step = 1
        while probe := await self.commit(fragment, low + step):
            low, found, step = low + step, probe, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if probe := await self.commit(fragment, middle):
                low, found = middle, probe
            else:
                high = middle
        return found

    # -- the lease -------------------------------------------------------------------------

    async def newest_term(self, after: int = 0) -> int:
        """Return the highest term taken; 0 when none ever was.

        ``after`` is a term known to exist.
        """
        entries = await self.store.list(keys.TERMS, after=keys.term(after) if after else "")
        terms = (keys.parse_term(entry.key) for entry in entries)
        return max((number for number in terms if number is not None), default=after)

    async def create_term(self, term: Term) -> Created:
        """Take the term, unless someone has."""
        return await self.store.create(keys.term(term.term), canonical.encode(term))

    async def beat(self, term: int) -> Beat | None:
        """Return the holder's newest beat; None before its first, or when it is unreadable."""
        return await self._hint(Beat, keys.beat(term))

    async def put_beat(self, beat: Beat) -> None:
        """Overwrite our own beat."""
        await self._put(keys.beat(beat.term), beat)

    # -- hints and presence ----------------------------------------------------------------

    async def head(self) -> Head | None:
        """Return the head hint; None when there is none or it is unreadable."""
        return await self._hint(Head, keys.HEAD)

    async def put_head(self, head: Head) -> None:
        """Overwrite the head hint."""
        await self._put(keys.HEAD, head)

    async def presence(self, learner: str) -> Presence | None:
        """Return what a learner says of itself; None when it says nothing readable."""
        return await self._hint(Presence, keys.learner(learner))

    async def put_presence(self, presence: Presence) -> None:
        """Overwrite our own presence."""
        await self._put(keys.learner(presence.learner), presence)

    async def learners(self) -> dict[str, Entry]:
        """Return the listing of every learner that ever showed, by name."""
        entries = await self.store.list(keys.LEARNERS)
        named = ((keys.parse_learner(entry.key), entry) for entry in entries)
        return {name: entry for name, entry in named if name is not None}

    # -- control ---------------------------------------------------------------------------

    async def stop_reason(self) -> str | None:
        """Return why someone asked the run to end, in one line; None while nobody has."""
        data = await self.store.read(keys.STOP, 0, HINT_LIMIT_BYTES)
        if data is None:
            return None
        try:
            reason = canonical.decode(Stop, keys.STOP, data).reason
        except RecordError as exc:  # whatever lies there ends the run
            reason = exc.reason
        # Anyone may have written it, and it goes to terminals: no escape codes.
        return "".join(one if one.isprintable() else " " for one in reason)

    async def create_stop(self, stop: Stop) -> Created:
        """Ask the run to end."""
        return await self.store.create(keys.STOP, canonical.encode(stop))

    async def create_boundary(self, boundary: Boundary) -> Created:
        """Announce a sweep."""
        key = keys.boundary(boundary.fragment, boundary.version)
        return await self.store.create(key, canonical.encode(boundary))

    async def newest_boundary(self, fragment: int) -> int:
        """Return the highest version a sweep announced; -1 when none ever did."""
        entries = await self.store.list(keys.boundaries_of(fragment))
        versions = (keys.parse_boundary(entry.key) for entry in entries)
        return max((version for version in versions if version is not None), default=-1)

    # -- helpers ---------------------------------------------------------------------------

    async def _read(self, key: str) -> bytes | None:
        """Read a record, and of a foreign object no more than shows that it is too large."""
        return await self.store.read(key, 0, canonical.MAX_RECORD_BYTES + 1)

    async def _put(self, key: str, record: msgspec.Struct) -> None:
        await self.store.put(key, [canonical.encode(record)])

    async def _hint(self, kind: type[R], key: str) -> R | None:
        """Read a record nothing depends on: unreadable is the same as absent."""
        data = await self.store.read(key, 0, HINT_LIMIT_BYTES)
        if data is None:
            return None
        try:
            return canonical.decode(kind, key, data)
        except RecordError:
            return None


def _commit(data: bytes, key: str, fragment: int, version: int) -> RoundRecord:
    record = canonical.decode(RoundRecord, key, data)
    if (record.fragment, record.version) != (fragment, version):
        held = f"version {record.version} of fragment {record.fragment}"
        raise RecordError(key, f"holds {held} instead of its own")
    return record
