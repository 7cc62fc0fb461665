"""What the doctor sees of a live run: two looks at who is there, one at every object.

Who lives is judged by what changes between the two looks, as closers do: no clock is compared.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from gradientmail.clock import Clock
from gradientmail.config import RunSettings
from gradientmail.records import keys
from gradientmail.records.commit import Rejection
from gradientmail.records.estimates import Estimates
from gradientmail.records.keys import GossipKey
from gradientmail.records.presence import Presence
from gradientmail.run import Run, Version
from gradientmail.store.base import Entry

AHEAD = 16
"""Records that are read side by side."""

RECORDS = frozenset(
    ("manifest.json", "head.json", "commits", "control", "learners", "swept", "terms", ".doctor")
)
"""How keys of a run begin, payloads and mail aside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FragmentFacts:
    """One fragment.

    Attributes:
        version: The newest; without a closer the newest that a learner has posted for.
        moved: It became newer between the looks, or a learner posted.
        open_s: Seconds since its newest commit, or since the run was created; by others' clocks.
        heard: Learners whose contribution to the next version is in the mail.
        boundary: Newest version that a sweep may delete; -1 when none was swept.
        missing: Versions above the boundary with a payload that is not there, and its key.
        rejected: Of the newest version.
        posts: Without a closer: the newest version that each learner has posted for.
    """

    fragment: int
    version: int
    moved: bool = True
    open_s: float = 0.0
    heard: frozenset[str] = frozenset()
    boundary: int = -1
    missing: tuple[tuple[int, str], ...] = ()
    rejected: tuple[Rejection, ...] = ()
    estimates: Estimates = field(default_factory=Estimates)
    posts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerFacts:
    """One learner that ever showed.

    Attributes:
        changed: Its presence was rewritten between the looks.
        ahead_s: Its clock before ours where it changed; otherwise how old it says to be, negated.
        step_s: What a step takes it.
    """

    name: str
    changed: bool
    left: bool
    ahead_s: float
    step_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CloserFacts:
    """The newest holder of the lease; ``changed``: it beat, or another took it, meanwhile."""

    name: str
    term: int
    released: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Bytes:
    """Some objects: how many, and how large together."""

    objects: int = 0
    size_bytes: int = 0

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> "Bytes":
        """Return the sum of ``entries``."""
        return cls(len(entries), sum(entry.size_bytes for entry in entries))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """All that the rules judge.

    Attributes:
        end: Why the run has ended; None while it goes on.
        observed_s: Seconds between the two looks; 0 where one was enough.
        used: Payloads and mail that records above the boundaries name, or that may still be used.
        sweepable: What no one needs, and the next sweep deletes.
        unused: Payloads that no record names above the boundary: of a closer that lost or died, or
            of a version in the making.
        foreign: Objects under the run's prefix that are none of its own.
    """

    run: str
    settings: RunSettings
    end: str | None
    observed_s: float
    fragments: tuple[FragmentFacts, ...] = ()
    learners: tuple[LearnerFacts, ...] = ()
    closer: CloserFacts | None = None
    used: Bytes = Bytes()
    sweepable: Bytes = Bytes()
    unused: Bytes = Bytes()
    foreign: Bytes = Bytes()

    @property
    def live(self) -> frozenset[str]:
        """Return the learners that are there."""
        return frozenset(one.name for one in self.learners if one.changed and not one.left)


def observation_s(settings: RunSettings) -> float:
    """Return how long two looks must lie apart: two signs of life are due by then, and a poll."""
    return max(settings.presence_s, settings.lease_s) / 2 + settings.poll_s


async def gather_facts(run: Run, clock: Clock, observing: Callable[[float], None]) -> RunFacts:
    """Look at ``run``, wait, and look again; every object is listed, no payload is read.

    One look is enough where nobody gives signs of life: the run has ended, or its learners
    exchange with nobody. ``observing`` is told how long the wait is.

    Raises:
        RecordError: a commit is damaged.
    """
    settings, before = run.manifest.settings, await _Look.at(run, clock)
    quiet = settings.exchange == "nobody" or before.end(settings) is not None
    wait_s = 0.0 if quiet else observation_s(settings)
    observing(wait_s)
    await clock.sleep(wait_s)
    after = before if quiet else await _Look.at(run, clock)
    entries = await run.mailbox.store.list("")
    boundaries = [await run.mailbox.newest_boundary(p) for p in range(len(run.layouts))]
    named = [
        await _named(run, newest, b) for newest, b in zip(after.newest, boundaries, strict=True)
    ]
    posted = {entry.key for entry in entries if _post(run, after.presences, entry.key)}
    sorted_out = _Sorted.of(entries, boundaries, posted.union(*named))
    return RunFacts(
        run=run.name,
        settings=settings,
        end=after.end(settings),
        observed_s=wait_s,
        fragments=tuple(
            _fragment(run, before, after, p, boundary, entries, named[p])
            for p, boundary in enumerate(boundaries)
        ),
        learners=tuple(_learners(before, after)),
        closer=_closer(before, after),
        used=Bytes.of(sorted_out.used),
        sweepable=Bytes.of(() if settings.retain else sorted_out.sweepable),
        unused=Bytes.of([*sorted_out.unused, *(sorted_out.sweepable if settings.retain else ())]),
        foreign=Bytes.of(sorted_out.foreign),
    )


# -- looks ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    wall_s: float
    newest: Sequence[Version]
    presences: Mapping[str, tuple[str, Presence]]
    lease: tuple[int, str, int, bool] | None
    stop: str | None
    posts: Sequence[Mapping[str, int]]

    @classmethod
    async def at(cls, run: Run, clock: Clock) -> "_Look":
        mailbox, newest = run.mailbox, await run.newest_of_all()
        entries = await mailbox.learners()
        found = await asyncio.gather(*(mailbox.presence(name) for name in entries))
        presences = {
            presence.learner: (entries[presence.learner].tag, presence)
            for presence in found
            if presence is not None and presence.run == run.name and presence.learner in entries
        }
        term = await mailbox.newest_term()
        beat = await mailbox.beat(term) if term else None
        lease = (beat.term, beat.closer, beat.count, beat.released) if beat else None
        stop = await mailbox.stop_reason()
        posts = _newest_posts(run, presences, await mailbox.store.list(keys.GOSSIP))
        return cls(clock.wall(), newest, presences, lease, stop, posts)

    def end(self, settings: RunSettings) -> str | None:
        if settings.exchange == "gossip":
            rounds = max((sum(said.versions) for _, said in self.presences.values()), default=0)
        else:
            rounds = sum(one.number for one in self.newest)
        last = settings.stop_after_rounds
        if last is not None and rounds >= last:
            return f"its last round, of {last}, is closed"
        return None if self.stop is None else f"someone asked it to stop: {self.stop}"


def _newest_posts(
    run: Run, learners: Container[str], entries: Iterable[Entry]
) -> list[dict[str, int]]:
    """Return of each fragment the newest version that each learner has posted for."""
    newest: list[dict[str, int]] = [{} for _ in run.layouts]
    for entry in entries:  # in the order of versions
        if post := _post(run, learners, entry.key):
            newest[post.fragment][post.learner] = post.version
    return newest


def _post(run: Run, learners: Container[str], key: str) -> GossipKey | None:
    """Return what lies under ``key`` by its name; None: it is no post of a learner of the run."""
    post = keys.parse_gossip(key)
    if post is None or run.manifest.settings.exchange != "gossip":
        return None
    known = post.fragment < len(run.layouts) and post.learner in learners
    return post if known and run.makes(post.fragment, post.version) else None


def _learners(before: _Look, after: _Look) -> list[LearnerFacts]:
    return [
        LearnerFacts(
            name=name,
            changed=name not in before.presences or before.presences[name][0] != tag,
            left=presence.left,
            ahead_s=presence.seen_at - after.wall_s,
            step_s=presence.step_s,
        )
        for name, (tag, presence) in after.presences.items()
    ]


def _closer(before: _Look, after: _Look) -> CloserFacts | None:
    if after.lease is None:
        return None
    term, name, _, released = after.lease
    return CloserFacts(
        name=name, term=term, released=released, changed=before.lease != after.lease
    )


def _fragment(  # noqa: PLR0913, PLR0917 - what two looks and a listing say of it
    run: Run,
    before: _Look,
    after: _Look,
    p: int,
    boundary: int,
    entries: Sequence[Entry],
    named: Mapping[str, int],
) -> FragmentFacts:
    newest, there = after.newest[p], {entry.key for entry in entries}
    record = newest.record
    letters = (keys.parse_mail(entry.key) for entry in entries)
    oldest = newest.number - run.manifest.settings.max_staleness
    heard = frozenset(
        letter.learner
        for letter in letters
        if letter
        and letter.fragment == p
        and letter.base >= oldest
        and letter.base > newest.applied.get(letter.learner, -1)
    )
    closed_at = record.closed_at if record else run.manifest.created_at
    posts = after.posts[p]
    return FragmentFacts(
        fragment=p,
        version=max(newest.number, *posts.values(), 0),
        moved=newest.number != before.newest[p].number or posts != before.posts[p],
        open_s=after.wall_s - closed_at,
        heard=heard,
        boundary=boundary,
        missing=tuple((version, key) for key, version in named.items() if key not in there),
        rejected=record.rejected if record else (),
        estimates=newest.estimates,
        posts=posts,
    )


# -- objects --------------------------------------------------------------------------------


async def _named(run: Run, newest: Version, boundary: int) -> dict[str, int]:
    """Return the payloads that versions above the boundary name, each with its newest version."""
    named: dict[str, int] = {}
    async for version in _versions(run, newest.fragment, boundary + 1, newest.number):
        named |= {ref.key: version.number for ref in version.payloads.values()}
    return named


async def _versions(run: Run, fragment: int, first: int, last: int) -> AsyncIterator[Version]:
    for start in range(first, last + 1, AHEAD):
        numbers = range(start, min(start + AHEAD, last + 1))
        for version in await asyncio.gather(*(run.version(fragment, n) for n in numbers)):
            if version is not None:
                yield version


@dataclass(frozen=True, slots=True)
class _Sorted:
    used: list[Entry]
    sweepable: list[Entry]
    unused: list[Entry]
    foreign: list[Entry]

    @classmethod
    def of(
        cls, entries: Sequence[Entry], boundaries: Sequence[int], needed: AbstractSet[str]
    ) -> "_Sorted":
        """Sort payloads, mail and posts by who needs them; signs of life are no matter."""
        heaps = cls([], [], [], [])
        for entry in entries:
            payload, letter = keys.parse_payload(entry.key), keys.parse_mail(entry.key)
            if entry.key in needed:
                heaps.used.append(entry)
            elif payload and payload[0] < len(boundaries):
                swept = payload[1] <= boundaries[payload[0]]
                (heaps.sweepable if swept else heaps.unused).append(entry)
            elif letter and letter.fragment < len(boundaries):
                swept = letter.base < boundaries[letter.fragment]
                (heaps.sweepable if swept else heaps.used).append(entry)
            elif entry.key.partition("/")[0] not in RECORDS:
                heaps.foreign.append(entry)
        return heaps
