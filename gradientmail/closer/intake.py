"""Intake: one contribution from a key in a listing to a checked file, or a reason to reject it."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from gradientmail.algorithm import DELTA
from gradientmail.algorithms.aggregator import Counters
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.closer.spool import Spool, file_digest
from gradientmail.codecs.layout import FragmentLayout, chunks
from gradientmail.codecs.payload import Header, PayloadFormat
from gradientmail.codecs.streaming import FileSource, PayloadReader
from gradientmail.errors import PayloadError, RecordError, StoreAccessError
from gradientmail.protocol.judging import Round, reason_to_reject, reason_to_reject_data
from gradientmail.records import canonical
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.keys import MailKey
from gradientmail.store.base import Entry, Store
from gradientmail.store.local import Offload

JUDGED_AT_ONCE = 8
"""Objects whose header, or a chunk of whose data, is in memory at the same time."""


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A contribution that counts.

    Attributes:
        counters: With the norms this closer found in the data.
        path: The whole object, in the spool.
        digest: Of the whole object.
    """

    key: str
    record: ContributionRecord
    counters: Counters
    path: Path
    digest: str


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """An object that does not count, and why; ``learner`` is whose mail it was."""

    key: str
    learner: str
    reason: str


Verdict = Accepted | Rejected


@dataclass(frozen=True)
class Intake:
    """Judges the mail of one fragment."""

    store: Store
    spool: Spool
    layout: FragmentLayout
    payload_format: PayloadFormat
    offload: Offload
    _seats: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(JUDGED_AT_ONCE))

    async def judge(self, judged: Round, key: MailKey, entry: Entry) -> Verdict | None:
        """Judge one object by one ranged read, then fetch it and check its data.

        None: it is gone, or an operator put something else in its place: look again.
        """
        try:
            async with self._seats:
                return await self._judge(judged, key, entry)
        except (PayloadError, RecordError, StoreAccessError) as exc:
            self.spool.drop(entry.key)
            reason = exc.reason if isinstance(exc, RecordError) else str(exc)
            return Rejected(key=entry.key, learner=key.learner, reason=reason)

    async def _judge(self, judged: Round, key: MailKey, entry: Entry) -> Verdict | None:
        head = await self.store.read(entry.key, 0, self.payload_format.max_header_bytes)
        if head is None:
            return None
        header = self.payload_format.check_header(head, entry.size_bytes)
        if header.metadata is None:
            raise PayloadError("it holds no contribution record")
        record = canonical.decode(ContributionRecord, entry.key, header.metadata.encode())
        if reason := reason_to_reject(judged, key, record):
            raise PayloadError(reason)
        fetched = await self.spool.fetch(entry.key, limit_bytes=entry.size_bytes)
        if fetched is None:
            return None
        path = self.spool.path(entry.key)
        found: list[float] = await self.offload(self._norms, path, header, record.digest)
        if reason := reason_to_reject_data(record.norms, found):
            raise PayloadError(reason)
        norms = [
            None if claim is None else norm
            for claim, norm in zip(record.norms, found, strict=True)
        ]
        return Accepted(
            key=entry.key,
            record=record,
            counters=Counters(
                steps=record.steps, tokens=record.tokens, samples=record.samples, norms=norms
            ),
            path=path,
            digest=fetched.digest,
        )

    def _norms(self, path: Path, header: Header, digest: str) -> list[float]:
        """Return the norm of each tensor in the file, having checked every byte of it."""
        if (found := file_digest(path, header.data_start)) != digest:
            raise PayloadError(f"its data has digest {found}, its header says {digest}")
        sums = SquareSums(self.layout)
        with FileSource(path) as source:
            reader = PayloadReader(self.payload_format, source)
            if reader.header != header:
                raise PayloadError("it was overwritten while it was judged")
            for start, stop in chunks(0, self.layout.numel):
                sums.add(start, reader.read(DELTA, start, stop))
        return sums.norms()
