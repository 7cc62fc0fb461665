"""Proving a run from its bytes: every chain, every digest, and every version derived again.

A fragment is walked from the manifest to its newest commit. What a record says is
held against the records before it (``chain``), what a payload holds against its digest, and, where
the predecessor's payloads and all contributions are still there, the version is computed anew and
must have the same digests. Objects pass through files, so memory does not grow with the model.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from gradientmail.closer.aggregation import Files, Written, aggregate, roles
from gradientmail.closer.intake import Accepted, Intake
from gradientmail.closer.spool import Spool
from gradientmail.errors import PayloadError, RecordError
from gradientmail.logs import get_logger
from gradientmail.operations.chain import Chain
from gradientmail.operations.gossiping import verify_posts
from gradientmail.operations.verified import Fault, FragmentVerified, NotDerived, Verified
from gradientmail.protocol.judging import Round
from gradientmail.records import keys
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.records.manifest import PayloadRef
from gradientmail.run import Run, Version, open_run
from gradientmail.store.base import Store
from gradientmail.store.local import Offload

AHEAD = 16
"""Records that are read side by side."""


async def verify_run(store: Store, directory: Path, *, offload: Offload) -> Verified:
    """Verify the run in ``store``; files of a few versions pass through ``directory``.

    Everything that is kept is read once. The run may go on meanwhile.

    Raises:
        RunNotFoundError: there is none.
        RecordError: the manifest is damaged: nothing can be held against it.

    Example:
        >>> verified = await verify_run(store, Path("/tmp/spool"), offload=asyncio.to_thread)
        >>> verified.faults
        ()
    """
    run = await open_run(store)
    spool = Spool(directory, store)
    told = await _told(run)
    verifiers = [FragmentVerifier(run, spool, offload, *one) for one in enumerate(told)]
    fragments = [await verifier.verify() for verifier in verifiers]
    faults = [fault for verifier in verifiers for fault in verifier.faults]
    if run.manifest.settings.exchange == "gossip":
        for p, fragment in enumerate(fragments):
            fragments[p], damaged = await verify_posts(run, fragment, offload=offload)
            faults += damaged
    return Verified(run=run.name, fragments=tuple(fragments), faults=tuple(faults))


async def _told(run: Run) -> list[int]:
    """Return of every fragment the version that the head tells of; 0 where it tells of none."""
    head = await run.mailbox.head()
    versions = head.versions if head and head.run == run.name else ()
    return [*versions, *[0] * len(run.layouts)][: len(run.layouts)]


class FragmentVerifier:
    """Verifies one fragment; ``faults`` is what it found to be wrong.

    Args:
        told: Version that the head told of beforehand, so it was committed.
    """

    def __init__(self, run: Run, spool: Spool, offload: Offload, fragment: int, told: int) -> None:
        layout = run.layouts[fragment]
        self._algorithm = run.algorithms[fragment]
        self.faults: list[Fault] = []
        self._run, self._spool, self._offload, self._fragment = run, spool, offload, fragment
        self._told = told
        self._roles = roles(self._algorithm, layout.numel)
        self._chain = Chain(run, run.origin(fragment), frozenset(self._roles))
        self._intake = Intake(
            store=run.mailbox.store,
            spool=spool,
            layout=layout,
            payload_format=self._algorithm.delta_format(layout.numel),
            offload=offload,
        )
        self._boundary = -1
        self._held: dict[str, str | None] = {}
        self._payloads = self._derived = self._empty = 0
        self._not_derived: list[NotDerived] = []

    async def verify(self) -> FragmentVerified:
        """Walk the chain; it ends where a record is missing or cannot be read."""
        self._boundary = await self._run.mailbox.newest_boundary(self._fragment)
        await self._check_payloads(self._chain.newest)
        async for version in self._versions():
            await self._check(version)
        newest = self._chain.newest.number
        await self._check_end(newest)
        log = get_logger("gradientmail.verify", run=self._run.name)
        log.info("verified", extra={"fragment": self._fragment, "version": newest})
        return FragmentVerified(
            fragment=self._fragment,
            version=newest,
            payloads=self._payloads,
            derived=self._derived,
            empty=self._empty,
            not_derived=tuple(self._not_derived),
        )

    def _fault(self, key: str, reason: str) -> None:
        self.faults.append(Fault(key=key, reason=reason))

    # -- records -----------------------------------------------------------------------------

    async def _versions(self) -> AsyncIterator[Version]:
        for first in itertools.count(1, AHEAD):
            numbers = range(first, first + AHEAD)
            for version in await asyncio.gather(*map(self._version, numbers)):
                if version is None:
                    return
                yield version

    async def _version(self, number: int) -> Version | None:
        try:
            return await self._run.version(self._fragment, number)
        except RecordError as exc:
            self._fault(exc.key, exc.reason)
            return None

    async def _check(self, version: Version) -> None:
        record, before = version.record, self._chain.newest
        if record is None:
            return
        anchors = dict(self._chain.anchors)
        reasons = self._chain.extend(record, version)
        for reason in reasons:
            self._fault(keys.commit(self._fragment, version.number), reason)
        await self._check_payloads(version)
        if record.empty:
            self._empty += 1
        elif (
            why := "its record is wrong"
            if reasons
            else await self._derive(before, record, anchors)
        ):
            self._note(version.number, why)
        else:
            self._derived += 1
        self._forget_all_but(version)

    async def _check_end(self, newest: int) -> None:
        """Find nothing behind the newest version, by listing or by head, and a boundary before."""
        mailbox, following = self._run.mailbox, keys.commit(self._fragment, newest + 1)
        listing = await mailbox.store.list(keys.commits_of(self._fragment), after=following)
        behind = [found for entry in listing if (found := keys.parse_commit(entry.key))]
        if (behind or self._told > newest) and await mailbox.store.read(following, 0, 1) is None:
            told = f"{keys.HEAD} tells of version {self._told}"
            why = f"version {behind[-1]} is there" if behind else told
            self._fault(following, f"it is missing, but {why}")
        if self._boundary < 0:
            return
        key = keys.boundary(self._fragment, self._boundary)
        if self._boundary >= newest and await self._version(self._boundary + 1) is None:
            self._fault(key, "it lets the newest version be swept")
        if self._run.manifest.settings.retain:
            self._fault(key, "the run is to retain everything, but was swept")

    def _note(self, number: int, reason: str) -> None:
        """Note that a version was not derived again, in one line with its like."""
        last = self._not_derived[-1] if self._not_derived else None
        first = number
        if last is not None and (last.last, last.reason) == (number - 1, reason):
            first = self._not_derived.pop().first
        self._not_derived.append(NotDerived(first=first, last=number, reason=reason))

    # -- payloads ----------------------------------------------------------------------------

    async def _check_payloads(self, version: Version) -> None:
        """Bring in the payloads of a version that are not here yet.

        An empty version has those of an earlier one, which may be gone only if both may be.
        """
        for ref in _payloads(version):
            if self._held.get(ref.key, "swept") == "swept":
                self._held[ref.key] = await self._bring(ref, version.number)

    async def _bring(self, ref: PayloadRef, number: int) -> str | None:
        """Bring one payload in; return why not."""
        try:
            fetched = await self._spool.fetch(ref.key, limit_bytes=ref.size_bytes)
        except PayloadError as exc:
            self._fault(ref.key, str(exc))
            return "damaged"
        if fetched is None:
            if await self._is_swept(number):
                return "swept"
            self._fault(ref.key, f"it is missing; version {number} needs it")
            return "missing"
        if (fetched.size_bytes, fetched.digest) != (ref.size_bytes, ref.digest):
            self._fault(ref.key, f"it has {fetched.size_bytes} bytes and digest {fetched.digest}")
            return "damaged"
        self._payloads += 1
        return None

    async def _is_swept(self, number: int) -> bool:
        """Whether a version may be gone: the boundary may have moved since we looked."""
        if number > self._boundary:
            self._boundary = await self._run.mailbox.newest_boundary(self._fragment)
        return number <= self._boundary

    def _forget_all_but(self, version: Version) -> None:
        needed = {ref.key for ref in _payloads(version)}
        gone = [key for key in self._held if key not in needed]
        self._spool.drop(*gone)
        for key in gone:
            del self._held[key]

    # -- deriving again ----------------------------------------------------------------------

    async def _derive(
        self, before: Version, record: RoundRecord, anchors: Mapping[int, str]
    ) -> str | None:
        """Compute the version that follows ``before`` anew; return why it cannot be done."""
        for ref in (before.params, before.outer):
            if ref is not None and (why := self._held[ref.key]):
                return f"the payloads of the version before are {why}"
        judged = self._round(before, record, anchors)
        accepted: list[Accepted] = []
        try:
            for used in record.participants:
                found = await self._contribution(judged, used)
                if not isinstance(found, Accepted):
                    return found
                accepted.append(found)
            return await self._compare(before, record, accepted)
        finally:
            self._spool.drop(*(used.key for used in record.participants))

    def _round(self, before: Version, record: RoundRecord, anchors: Mapping[int, str]) -> Round:
        return Round(
            run=self._run.name,
            fragment=self._fragment,
            version=record.version,
            anchors=anchors,
            precision=self._algorithm.delta_dtype,
            tensors=len(self._run.layouts[self._fragment].slots),
            weighs_samples=self._algorithm.weighs_samples,
            applied=before.applied,
        )

    async def _contribution(self, judged: Round, used: Participant) -> Accepted | str:
        """Judge a contribution as the closer did; a string says why it cannot be used."""
        key = keys.parse_mail(used.key)
        listing = await self._run.mailbox.store.list(used.key)
        entry = next((entry for entry in listing if entry.key == used.key), None)
        verdict = await self._intake.judge(judged, key, entry) if key and entry else None
        if verdict is None:
            if await self._is_swept(used.base + 1):
                return "its contributions are swept"
            self._fault(used.key, f"it is missing; version {judged.version} used it")
            return "a contribution is missing"
        if isinstance(verdict, Accepted) and _claims(verdict) == _claims(used):
            return verdict
        reason = "it is not what was used" if isinstance(verdict, Accepted) else verdict.reason
        self._fault(used.key, f"{reason}; version {judged.version} used it")
        return "a contribution is damaged"

    async def _compare(
        self, before: Version, record: RoundRecord, accepted: Sequence[Accepted]
    ) -> str | None:
        layout = self._run.layouts[self._fragment]
        files = Files(
            params=self._spool.path(before.params.key),
            outer=self._spool.path(before.outer.key) if before.outer else None,
            version=before.number,
            outer_steps=before.outer_steps,
        )
        target = {role: self._spool.path(f"derived/{role}") for role in self._roles}
        key = keys.commit(self._fragment, record.version)
        try:
            written: Written = await self._offload(
                aggregate, self._algorithm, layout, accepted, files, target
            )
            wrong = _differences(record, written)
        except PayloadError as exc:
            wrong = [f"its inputs give nothing that can be published: {exc}"]
        for reason in wrong:
            self._fault(key, reason)
        return "it is not what its inputs give" if wrong else None


def _payloads(version: Version) -> Iterator[PayloadRef]:
    return (ref for ref in (version.params, version.outer, version.update) if ref is not None)


def _claims(of: Accepted | Participant) -> tuple[object, ...]:
    """Return what a commit repeats of a contribution."""
    said = of.record if isinstance(of, Accepted) else of
    return (
        said.incarnation,
        said.nonce,
        said.base,
        said.steps,
        said.tokens,
        said.samples,
        of.digest,
    )


def _differences(record: RoundRecord, written: Written) -> list[str]:
    """Return in what a record differs from what was derived, a line each."""
    said = {"params": record.params, "outer": record.outer, "update": record.update}
    wrong = [
        f"its {role} is not what its inputs give"
        for role, digest in written.digests.items()
        if (ref := said[role]) is None or digest != ref.digest
    ]
    outcome = written.outcome
    each = [
        (used.weight, used.norm, used.clip, used.divergence, used.cosine, used.suppressed)
        for used in record.participants
    ]
    found = [
        (weight, norm, clip, sight.divergence, sight.cosine, suppressed)
        for weight, norm, clip, sight, suppressed in zip(
            outcome.weights,
            outcome.norms,
            outcome.clips,
            outcome.sights,
            outcome.suppressed,
            strict=True,
        )
    ]
    sums = (record.cosine, record.norm, record.outer_scale)
    if (each, sums) != (found, (outcome.cosine, outcome.norm, outcome.scale)):
        wrong.append("its weights, norms or cosines are not what its inputs give")
    return wrong
