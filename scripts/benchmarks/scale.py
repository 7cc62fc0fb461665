"""The real closer beside a thousand learners, on virtual time.

Learners are played: each posts one small contribution for every round of its fragment as soon as
the version before is committed, and beats. So what is measured is the closer alone: CPU seconds of
this process less those of the play, and requests. Eight closers are there, but the lease is one
for all fragments, so one of them closes and seven stand by.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks.frame import Figure, Options, Result, at_most
from benchmarks.logged import PAGE_KEYS, described
from benchmarks.virtual import NONCE, World, settings_of, world
from gradientmail.clock import fresh_nonce
from gradientmail.learner.posts import encode_delta
from gradientmail.records import canonical, keys
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.presence import Presence
from gradientmail.run import Run, open_run
from gradientmail.simulation.loop import rng_of, run_virtual
from gradientmail.store.base import Created, Entry
from gradientmail.store.memory import MemoryStore

FRAGMENTS, CLOSERS = 24, 8
VERSIONS = 2
SIZES: dict[str, tuple[int, ...]] = {
    "tiny": (4, 8),
    "quick": (25, 100),
    "full": (125, 1000),
}
BEAT_S = 15.0


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    fragments = {"tiny": 2, "quick": 4, "full": FRAGMENTS}[options.size]
    found = [_closed(learners, fragments) for learners in SIZES[options.size]]
    first = found[0]
    for one in found:
        yield Figure(
            what=f"{one.learners} learners, {fragments} fragments: CPU of a contribution",
            value=1000.0 * one.cpu_s / one.contributions,
            unit="ms",
            cpu_s=one.cpu_s,
            note=f"{one.rounds} rounds, {one.contributions} contributions",
        )
    last = found[-1]
    yield Figure(
        what=f"CPU of a contribution, {last.learners} learners against {first.learners}",
        value=(last.cpu_s / last.contributions) / (first.cpu_s / first.contributions),
        unit="x",
        target=at_most(1.1),
        note="1 is linear",
    )
    yield Figure(
        what=f"requests of a contribution, {last.learners} learners against {first.learners}",
        value=(last.requests / last.contributions) / (first.requests / first.contributions),
        unit="x",
        target=at_most(1.1),
    )
    yield Figure(
        what=f"{last.learners} learners: keys of the longest listing",
        value=last.longest,
        unit="keys",
        target=at_most(PAGE_KEYS),
        note=last.longest_of,
    )
    yield Figure(
        what=f"{last.learners} learners: closers that closed a round",
        value=last.closers,
        unit=f"of {CLOSERS}",
        note="one lease for all fragments: the others stand by",
    )
    yield Figure(
        what=f"{last.learners} learners: requests of a round",
        value=last.requests / last.rounds,
        unit="requests",
        note=last.said,
    )


@dataclass(frozen=True, kw_only=True)
class Closed:
    """What closing some rounds took."""

    learners: int
    rounds: int
    contributions: int
    cpu_s: float
    requests: int
    closers: int
    longest: int
    longest_of: str
    said: str


def _closed(learners: int, fragments: int) -> Closed:
    return run_virtual(_close(learners, fragments))


async def _close(learners: int, fragments: int) -> Closed:
    settings = settings_of(
        sync_every=100,
        fragments=fragments,
        in_flight=fragments,
        stop_after_rounds=fragments * VERSIONS,
        grace_s=None,  # every learner is in every round
    )
    async with world(settings, store=Shelf()) as here:
        await here.create(nn.Sequential(*(nn.Linear(32, 32) for _ in range(fragments))))
        play = _Play(here, await open_run(here.store), learners)
        await play.beat()
        for index in range(CLOSERS):
            here.closer(f"closer-{index}")
        playing = asyncio.create_task(play.run())
        cpu = time.process_time() - play.cpu_s
        last = keys.commit(fragments - 1, VERSIONS)
        while await here.store.read(last) is None or play.open:
            await here.until(here.now + 0.5)
        cpu = time.process_time() - play.cpu_s - cpu
        playing.cancel()
        operations = here.log.of("closer")
    listings = [one for one in operations if one.what == "list"]
    longest = max(listings, key=lambda one: one.found)
    return Closed(
        learners=learners,
        rounds=fragments * VERSIONS,
        contributions=fragments * VERSIONS * learners,
        cpu_s=cpu,
        requests=sum(one.requests for one in operations),
        closers=len({one.who for one in operations if one.kind == "create commits"}),
        longest=longest.found,
        longest_of=f"of {longest.key}",
        said=described(operations, fragments * VERSIONS, most=8),
    )


class _Play:
    """Plays the learners. What it does costs no virtual time, and its CPU seconds are counted."""

    def __init__(self, here: World, run: Run, learners: int) -> None:
        self._here, self._run = here, run
        self._names = [f"learner-{index:04d}" for index in range(learners)]
        self._rng = rng_of("play")
        self._beats = 0
        self._posted = [-1] * len(run.layouts)
        self._encoded = [self._encode(p) for p in range(len(run.layouts))]
        self.cpu_s = 0.0

    @property
    def open(self) -> bool:
        """Whether a version of a fragment is still to come."""
        return any(base < VERSIONS for base in self._posted)

    async def run(self) -> None:
        """Post what is due, and beat."""
        beaten = self._here.now
        while True:
            began = time.process_time()
            for fragment in range(len(self._posted)):
                await self._post(fragment)
            if self._here.now - beaten >= BEAT_S:
                beaten = self._here.now
                await self.beat()
            self.cpu_s += time.process_time() - began
            await asyncio.sleep(0.25)

    async def beat(self) -> None:
        """Let every learner be seen."""
        self._beats += 1
        for name in self._names:
            presence = Presence(
                run=self._run.name,
                learner=name,
                incarnation=NONCE,
                count=self._beats,
                versions=tuple(max(0, base) for base in self._posted),
            )
            await self._here.store.put(keys.learner(name), [canonical.encode(presence)])

    async def _post(self, fragment: int) -> None:
        base = self._posted[fragment] + 1
        version = await self._run.version(fragment, base)
        if version is None or base > VERSIONS:
            return
        self._posted[fragment] = base
        if base == VERSIONS:
            return
        data, norms, digest = self._encoded[fragment]
        algorithm, layout = self._run.algorithm, self._run.layouts[fragment]
        for name in self._names:
            nonce = fresh_nonce(self._rng)
            record = ContributionRecord(
                run=self._run.name,
                learner=name,
                incarnation=NONCE,
                fragment=fragment,
                base=base,
                anchor=version.digest,
                steps=10,
                tokens=1000,
                step_s=0.1,
                final=False,
                precision=algorithm.delta_dtype,
                norms=norms,
                digest=digest,
                nonce=nonce,
            )
            header = algorithm.delta_format(layout.numel).header(canonical.encode(record).decode())
            await self._here.store.put(keys.mail(fragment, base, name, nonce), [header, data])

    def _encode(self, fragment: int) -> tuple[bytes, tuple[float | None, ...], str]:
        layout = self._run.layouts[fragment]
        delta = torch.zeros(layout.numel)
        chance = torch.Generator().manual_seed(fragment)
        for slot in layout.slots:
            drawn = torch.randn(slot.numel, generator=chance)
            delta[slot.offset : slot.offset + slot.numel] = drawn
        encoded = encode_delta(self._run.algorithm.delta_format(layout.numel), layout, delta)
        data = bytes(encoded.data)
        return data, encoded.norms, canonical.digest_of(data)


class Shelf(MemoryStore):
    """A store in memory that lists in the time of what it finds, as a server does."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str] = []
        self._entries: dict[str, Entry] = {}
        self._writes = 0

    async def create(self, key: str, data: bytes) -> Created:
        """See ``Store.create``."""
        created = await super().create(key, data)
        if created is Created.CREATED:
            self._shelve(key, len(data))
        return created

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        """See ``Store.put``."""
        await super().put(key, buffers)
        self._shelve(key, sum(memoryview(one).nbytes for one in buffers))

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        """See ``Store.list``."""
        first = max(bisect_left(self._keys, prefix), bisect_right(self._keys, after))
        found = []
        for key in self._keys[first:]:
            if not key.startswith(prefix):
                break
            found.append(self._entries[key])
        return found

    async def delete(self, doomed: Iterable[str]) -> None:
        """See ``Store.delete``."""
        for key in doomed:
            await super().delete([key])
            if self._entries.pop(key, None):
                del self._keys[bisect_left(self._keys, key)]

    def _shelve(self, key: str, size_bytes: int) -> None:
        if key not in self._entries:
            insort(self._keys, key)
        self._writes += 1
        self._entries[key] = Entry(key, size_bytes, f"{self._writes:x}")
