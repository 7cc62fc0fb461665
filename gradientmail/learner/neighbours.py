"""What neighbours post to each other in a run without a closer: written, listed, read, swept."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from gradientmail.algorithm import FAST, SLOW
from gradientmail.codecs.layout import chunks
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import BufferTarget, PayloadWriter, decoded
from gradientmail.errors import PayloadError, RecordError
from gradientmail.learner.desk import Desk
from gradientmail.learner.payloads import checked_params
from gradientmail.learner.posts import Arrival, Draft
from gradientmail.records import canonical, keys
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.keys import GossipKey
from gradientmail.run import Run, Version
from gradientmail.store.base import Store
from gradientmail.tasks import persistently

T = TypeVar("T")

Vectors = Mapping[str, Tensor]
"""Flat float32 by section: ``fast``, and ``slow`` where the rule posts it."""


@dataclass(frozen=True, kw_only=True)
class Posting:
    """One fragment of ours in one round.

    Attributes:
        version: Which the fragment has after it.
        fast: Parameters after our inner steps.
        slow: Parameters before them.
        draft: What was trained.
    """

    fragment: int
    version: int
    fast: Tensor
    slow: Tensor
    draft: Draft


class Neighbours:
    """The gossip of a run. Every call is repeated while the store is out of reach."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._run = desk, desk.run
        self._store = desk.run.mailbox.store

    async def post(self, posting: Posting) -> None:
        """Put until it is acknowledged; the name is ours alone."""
        payload_format, draft = self._format(posting.fragment), posting.draft
        data, digest = await self._desk.offload(_hashed, payload_format, posting)
        record = ContributionRecord(
            run=self._run.name,
            learner=self._desk.name,
            incarnation=self._desk.incarnation,
            fragment=posting.fragment,
            base=posting.version - 1,
            anchor=draft.base.digest,
            steps=draft.trained.steps,
            tokens=draft.trained.tokens,
            samples=draft.trained.samples,
            step_s=draft.step_s,
            final=draft.final,
            precision=self._run.algorithm.commit_dtype,
            norms=(),
            digest=digest,
            nonce=draft.nonce,
        )
        header = payload_format.header(canonical.encode(record).decode())
        key = keys.gossip(posting.fragment, posting.version, self._desk.name)
        await self.persist(lambda: self._store.put(key, [header, memoryview(data)]))

    async def posted(self, fragment: int, version: int = 0) -> dict[str, set[int]]:
        """Return which versions each learner has posted, from ``version`` on."""
        found: dict[str, set[int]] = {}
        for key in await self.persist(lambda: posts(self._store, fragment, version)):
            found.setdefault(key.learner, set()).add(key.version)
        return found

    async def read(self, fragment: int, version: int, name: str) -> Vectors | None:
        """Return what a learner posted; None: it is gone, or of no use."""
        key = GossipKey(fragment, version, name)
        data = await self.persist(lambda: fetched(self._run, key))
        if data is None:
            return None
        try:
            vectors: Vectors = await self._desk.offload(judged, self._run, key, data)
        except (PayloadError, RecordError) as exc:
            self._desk.log.warning("ignoring %s: %s", keys.gossip(*key), exc)
            return None
        return {section: vector.to(self._desk.device) for section, vector in vectors.items()}

    async def newest(
        self, fragment: int, beyond: int = 0, whom: Collection[str] | None = None
    ) -> Arrival | None:
        """Return what ``whom``, or anyone, posted last above ``beyond``; ourselves first.

        Nothing counts that is damaged, or of a round that the run does not have.
        """
        there = await self.posted(fragment, beyond + 1)
        names = there.keys() if whom is None else there.keys() & whom
        posted = [(v, n) for n in names for v in there[n] if self._run.makes(fragment, v)]
        ours = self._desk.name
        for number, name in sorted(posted, key=lambda one: (-one[0], one[1] != ours, one[1])):
            if vectors := await self.read(fragment, number, name):
                version = own_version(self._run, fragment, number)
                return Arrival(version=version, params=vectors[FAST])
        return None

    async def origin(self, fragment: int) -> Arrival:
        """Return what the run began with.

        Raises:
            RecordError: it is missing or damaged.
        """
        origin = self._run.origin(fragment)
        ref, device = origin.params, self._desk.device
        form = self._run.algorithm.params_format(self._run.layouts[fragment].numel)
        data = await self.persist(lambda: self._store.read(ref.key, 0, ref.size_bytes + 1))
        try:
            params: Tensor = await self._desk.offload(
                checked_params, ref, data or b"", form, device
            )
        except PayloadError as exc:
            raise RecordError(ref.key, "the first parameters are missing or damaged") from exc
        return Arrival(version=origin, params=params)

    async def sweep(self, fragment: int, version: int) -> None:
        """Delete what we posted for ``version``."""
        key = keys.gossip(fragment, version, self._desk.name)
        await self.persist(lambda: self._store.delete([key]))

    async def persist(self, act: Callable[[], Awaitable[T]]) -> T:
        """Return what ``act`` does once the store lets it."""
        pause_s = self._run.manifest.settings.poll_s
        return await persistently(act, self._desk.clock, self._desk.log, pause_s=pause_s)

    def as_posted(self, posting: Posting) -> Vectors:
        """Return ``posting`` as everybody else decodes it."""
        payload_format = self._format(posting.fragment)
        data = payload_format.header(None) + encoded(payload_format, posting)
        vectors = _decoded(payload_format, data)
        return {section: vector.to(self._desk.device) for section, vector in vectors.items()}

    def _format(self, fragment: int) -> PayloadFormat:
        return self._run.algorithm.gossip_format(self._run.layouts[fragment].numel)


async def posts(store: Store, fragment: int, version: int = 0) -> list[GossipKey]:
    """Return what learners posted of ``fragment`` and is still there, from ``version`` on."""
    prefix = keys.gossip_of(fragment)
    listing = await store.list(prefix, after=f"{prefix}{version:010d}")
    return [found for entry in listing if (found := keys.parse_gossip(entry.key))]


async def fetched(run: Run, key: GossipKey) -> bytes | None:
    """Return what is under ``key``, cut off beyond the size a post can have; None: it is gone."""
    payload_format = run.algorithm.gossip_format(run.layouts[key.fragment].numel)
    limit = payload_format.max_header_bytes + payload_format.data_bytes
    return await run.mailbox.store.read(keys.gossip(*key), 0, limit + 1)


def judged(run: Run, key: GossipKey, data: bytes) -> Vectors:
    """Return what the object under ``key`` holds.

    Raises:
        PayloadError, RecordError: ``data`` is no learner's post, or another one.
    """
    payload_format = run.algorithm.gossip_format(run.layouts[key.fragment].numel)
    header = payload_format.check_header(data[: payload_format.max_header_bytes], len(data))
    if header.metadata is None:
        raise PayloadError("it holds no record")
    record = canonical.decode(ContributionRecord, keys.gossip(*key), header.metadata.encode())
    place = GossipKey(record.fragment, record.base + 1, record.learner)
    if (record.run, place) != (run.name, key):
        raise PayloadError("it is of another run, fragment, round or learner")
    if canonical.digest_of(memoryview(data)[header.data_start :]) != record.digest:
        raise PayloadError("its data differs from its record's digest")
    return _decoded(payload_format, data)


def _decoded(payload_format: PayloadFormat, data: bytes) -> Vectors:
    """Return every section of a whole payload object, on the CPU."""
    sections = payload_format.sections
    return {section: decoded(data, payload_format, section=section) for section in sections}


def own_version(run: Run, fragment: int, number: int) -> Version:
    """Return a version that only the learner itself knows; its payload is in no store."""
    origin = run.origin(fragment)
    return Version(
        fragment=fragment, number=number, digest=origin.digest, params=origin.params, record=None
    )


async def version_here(run: Run, fragment: int, number: int) -> Version | None:
    """Return a version that a learner was in; None: it is not committed, and should be."""
    if run.manifest.settings.exchange == "gossip":
        return own_version(run, fragment, number)
    return await run.version(fragment, number)


def encoded(payload_format: PayloadFormat, posting: Posting) -> bytearray:
    """Return the data of a posting, without a header."""
    target = BufferTarget()
    writer = PayloadWriter(payload_format, target, header=b"")
    vectors = {FAST: posting.fast, SLOW: posting.slow}
    for section in payload_format.sections:
        for start, stop in chunks(0, payload_format.numel):
            writer.write(section, start, vectors[section][start:stop])
    return target.data


def _hashed(payload_format: PayloadFormat, posting: Posting) -> tuple[bytearray, str]:
    """Return the data of a posting and their digest."""
    data = encoded(payload_format, posting)
    return data, canonical.digest_of(memoryview(data))
