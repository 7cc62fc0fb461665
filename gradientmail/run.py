"""An open run: its manifest, and what follows from it, read once and shared by everyone."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gradientmail.algorithm import Algorithm, algorithm_of, algorithms_by_module
from gradientmail.codecs import native
from gradientmail.codecs.layout import FragmentLayout, layout
from gradientmail.errors import RecordError
from gradientmail.logs import FieldLogger
from gradientmail.mailbox import Mailbox
from gradientmail.protocol.modules import prefix_of
from gradientmail.records import keys
from gradientmail.records.commit import RoundRecord
from gradientmail.records.estimates import Estimates
from gradientmail.records.head import Head, Standing, Voucher, digest_beside
from gradientmail.records.manifest import Manifest, PayloadRef, PlanEntry, TensorSpec
from gradientmail.store.base import Store

READ_AT_ONCE = 16
"""Fragments whose commits are looked for side by side."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """One committed version of a fragment: where its payloads are, and the chain behind it.

    Attributes:
        digest: Of its record; the next version's parent and the ``anchor`` of contributions to it.
        record: The record; None for version 0, which the manifest names, and for a version that
            another fragment's commit vouches for.
    """

    fragment: int
    number: int
    digest: str
    params: PayloadRef
    record: RoundRecord | None = None

    @property
    def outer(self) -> PayloadRef | None:
        """The closer's own state; None before the first outer step."""
        return self.record.outer if self.record else None

    @property
    def update(self) -> PayloadRef | None:
        """What leads here from the version before; None: fetch ``params``."""
        return self.record.update if self.record else None

    @property
    def payloads(self) -> dict[str, PayloadRef]:
        """What it consists of, by role: params, and outer and update where it has them."""
        roles = {"params": self.params, "outer": self.outer, "update": self.update}
        return {role: ref for role, ref in roles.items() if ref is not None}

    @property
    def standing(self) -> Standing:
        """What a commit of another fragment says of it."""
        return Standing(
            fragment=self.fragment, version=self.number, digest=self.digest, params=self.params
        )

    @property
    def applied(self) -> dict[str, int]:
        """Highest base used of each learner."""
        return self.record.applied if self.record else {}

    @property
    def outer_steps(self) -> int:
        """Outer steps taken up to it."""
        return self.record.outer_steps if self.record else 0

    @property
    def estimates(self) -> Estimates:
        """How long things take."""
        return self.record.estimates if self.record else Estimates()


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a learner, a closer and a reader all start from."""

    mailbox: Mailbox
    manifest: Manifest
    digest: str
    algorithm: Algorithm
    layouts: tuple[FragmentLayout, ...]

    @property
    def name(self) -> str:
        """The run's own name, which every record repeats."""
        return self.manifest.run

    @cached_property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """Return the algorithm of each fragment: the run's, or that of its module."""
        if not self.manifest.settings.modules:
            return (self.algorithm,) * len(self.layouts)
        return algorithms_of(self.manifest)

    @property
    def weighs_samples(self) -> bool:
        """Whether a contribution to any fragment weighs by the samples its learner counts."""
        return any(one.weighs_samples for one in self.algorithms)

    def makes(self, fragment: int, version: int) -> bool:
        """Whether some round of the run makes ``version`` of ``fragment``."""
        last = self.manifest.settings.stop_after_rounds
        return last is None or self.algorithm.schedule.round_of(fragment, version) < last

    def origin(self, fragment: int) -> Version:
        """Return version 0 of ``fragment``."""
        params = self.manifest.fragments[fragment].params
        return Version(fragment=fragment, number=0, digest=self.digest, params=params)

    async def version(self, fragment: int, number: int) -> Version | None:
        """Return that version; None when it is not committed.

        Raises:
            RecordError: the bytes are no commit of it.
        """
        if number == 0:
            return self.origin(fragment)
        return await self._found(lambda: self.mailbox.commit(fragment, number))

    async def newest(self, fragment: int, hint: int = 0) -> Version:
        """Return the newest version there is; ``hint`` says where to begin looking."""
        newest = await self._found(lambda: self.mailbox.newest_commit(fragment, hint))
        return newest or self.origin(fragment)

    async def _found(
        self, find: Callable[[], Awaitable[tuple[RoundRecord, str] | None]]
    ) -> Version | None:
        try:
            return self._own(await find())
        except RecordError:
            return self._own(await find())  # read again: it may have been damaged on its way

    async def newest_of_all(self) -> list[Version]:
        """Return the newest version of every fragment: one read of the head, then two each."""
        return await self._of_all(self.newest, await self.mailbox.head())

    async def told_of_all(self) -> list[Version]:
        """Return of every fragment the version that the head tells of: one read, then one each.

        Where it tells wrong, the newest is searched for. A stale head gives an old version: go on
        from it and look for the one that follows.
        """
        return await self._of_all(self._told, await self.mailbox.head())

    async def vouched_of_all(self) -> list[Version]:
        """Return the same, without records, where one commit vouches for all: two reads.

        Only what the head tells to be newer by now is read for itself, and all of it where the
        head holds no voucher or another one than the commit.
        """
        head = await self.mailbox.head()
        vouched = await self._vouched(head.voucher) if head and head.voucher else {}

        async def find(fragment: int, told: int) -> Version:
            version = vouched.get(fragment)
            if version is not None and version.number >= told:
                return version
            return await self._told(fragment, told)

        return await self._of_all(find, head)

    async def _vouched(self, voucher: Voucher) -> dict[int, Version]:
        """Return the versions that a commit proves: a head alone is never believed."""
        commit = None
        if voucher.fragment < len(self.layouts):
            commit = await self.version(voucher.fragment, voucher.version)
        if commit is None or commit.record is None:
            return {}
        if commit.record.beside != digest_beside(voucher.beside):
            return {}
        beside = (
            Version(
                fragment=one.fragment, number=one.version, digest=one.digest, params=one.params
            )
            for one in voucher.beside
        )
        return {commit.fragment: commit, **{one.fragment: one for one in beside}}

    async def _told(self, fragment: int, hint: int) -> Version:
        told = await self.version(fragment, hint) if hint else None
        return told or await self.newest(fragment)

    async def _of_all(
        self, find: Callable[[int, int], Awaitable[Version]], head: Head | None
    ) -> list[Version]:
        """Find a version of every fragment, given what the head says of it.

        Without a head the last fragment is searched for: all others are about as far.
        """
        if head is None:
            last = await self.newest(len(self.layouts) - 1)
            find, hints = self.newest, [last.number] * len(self.layouts)
        else:
            hints = [*head.versions, *[0] * len(self.layouts)]
        seats = asyncio.Semaphore(READ_AT_ONCE)

        async def seated(fragment: int) -> Version:
            async with seats:
                return await find(fragment, hints[fragment])

        return await asyncio.gather(*map(seated, range(len(self.layouts))))

    def _own(self, found: tuple[RoundRecord, str] | None) -> Version | None:
        """Return the version a record commits, having found that it is of this run."""
        if found is not None and found[0].run != self.name:
            record = found[0]
            key = keys.commit(record.fragment, record.version)
            raise RecordError(key, f"of run {record.run!r}, this is {self.name!r}")
        return as_version(found)


def as_version(found: tuple[RoundRecord, str] | None) -> Version | None:
    """Return the version a record commits."""
    if found is None:
        return None
    record, digest = found
    return Version(
        fragment=record.fragment,
        number=record.version,
        digest=digest,
        params=record.params,
        record=record,
    )


def algorithms_of(manifest: Manifest) -> tuple[Algorithm, ...]:
    """Return the algorithm of each fragment; its parameters are all of one module."""
    settings = manifest.settings
    made = algorithms_by_module(settings)
    firsts = (fragment.entries[0].name for fragment in manifest.fragments)
    return tuple(made[prefix_of(name, settings.modules)] for name in firsts)


async def open_run(store: Store) -> Run:
    """Return the run that ``store`` holds.

    Raises:
        RunNotFoundError: there is none.
        RecordError: the manifest is damaged, or of a format this gradientmail does not read.
    """
    mailbox = Mailbox(store)
    manifest, digest = await mailbox.manifest()
    specs = {spec.name: spec for spec in manifest.tensors}
    return Run(
        mailbox=mailbox,
        manifest=manifest,
        digest=digest,
        algorithm=algorithm_of(manifest.settings),
        layouts=tuple(fragment_layout(one.entries, specs) for one in manifest.fragments),
    )


def fragment_layout(
    entries: Iterable[PlanEntry], specs: Mapping[str, TensorSpec]
) -> FragmentLayout:
    """Return where the tensors of a fragment lie: parameters in the plan's order, then buffers."""
    sizes: dict[str, list[tuple[str, int]]] = {"parameter": [], "buffer": []}
    for entry in entries:
        if (entry.start_row, entry.end_row) != (0, None):
            raise RecordError(
                keys.MANIFEST,
                f"it deals rows of {entry.name!r}: this gradientmail deals whole tensors only",
            )
        spec = specs[entry.name]
        sizes[spec.kind].append((spec.name, numel_of(spec)))
    return layout(sizes["parameter"], sizes["buffer"])


def numel_of(spec: TensorSpec) -> int:
    """Return how many elements the tensor has."""
    return math.prod(spec.shape)


def start_warming(run: Run, log: FieldLogger) -> None:
    """Load compiled kernels in a thread of their own, if the run's fragments are worth it."""
    largest = max((one.numel for one in run.layouts), default=0)
    warming = threading.Thread(
        target=native.warm_up_for,
        args=(largest, log.debug),
        name="gradientmail-kernels",
        daemon=True,
    )
    warming.start()
