"""A run at one glance: what is committed, who contributed, who is there, what is missing."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Literal

import msgspec

from gradientmail.clock import Clock
from gradientmail.config import RunSettings
from gradientmail.mailbox import Mailbox
from gradientmail.records.commit import RoundRecord
from gradientmail.records.manifest import Manifest
from gradientmail.records.presence import Presence
from gradientmail.store.base import Store


class FragmentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment.

    Attributes:
        version: Newest committed; without a closer the newest that a learner says it is at.
        elements: Numbers exchanged, padding not counted.
        params_bytes: Size of the newest published parameters.
        commit: The newest commit: participants, rejections, cosine, estimates; None at version 0.
    """

    fragment: int
    version: int
    tensors: int
    elements: int
    params_bytes: int
    commit: RoundRecord | None


class LearnerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One learner that ever showed.

    Attributes:
        state: What the age of its presence makes of it: live, silent for longer than
            ``presence_s``, or left.
        age_s: Seconds since it wrote its presence, its clock against ours: for people only. The
            closer judges by its own clock, from presences that change or do not.
        presence: What it says of itself.
    """

    name: str
    state: Literal["live", "silent", "left"]
    age_s: float
    presence: Presence


class CloserStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Who closes.

    Attributes:
        term: The lease's newest term.
        beats: Count of its newest beat; it rises while the closer lives.
        released: The closer gave the lease back.
    """

    name: str
    term: int
    beats: int
    released: bool


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gradientmail status --json`` prints.

    Attributes:
        state: running; stopping once it was asked to; done after its last round.
        stop_reason: Why it was asked to; None while it was not.
        rounds: Rounds closed, of all fragments.
        closer: Newest holder of the lease; None before the first, or before its first beat.
        notices: What a person should know or do, a line each.
    """

    run: str
    created_at: float
    created_by: str
    program: str | None
    state: Literal["running", "stopping", "done"]
    stop_reason: str | None = None
    rounds: int
    settings: RunSettings
    closer: CloserStatus | None
    fragments: tuple[FragmentStatus, ...]
    learners: tuple[LearnerStatus, ...]
    notices: tuple[str, ...]


async def run_status(store: Store, *, clock: Clock) -> RunStatus:
    """Look at the run in ``store``: about three requests a fragment and one a learner.

    Raises:
        RunNotFoundError: there is none.
        RecordError: a record that everything depends on is damaged.
    """
    mailbox = Mailbox(store)
    manifest, _ = await mailbox.manifest()
    head = await mailbox.head()
    hints = [*(head.versions if head else ()), *repeat(0, len(manifest.fragments))]
    commits, learners, closer, stop_reason = await asyncio.gather(
        asyncio.gather(
            *(mailbox.newest_commit(p, hints[p]) for p in range(len(manifest.fragments)))
        ),
        _learners(mailbox, manifest, clock.wall()),
        _closer(mailbox),
        mailbox.stop_reason(),
    )
    newest = [found and found[0] for found in commits]
    mixing = learners if manifest.settings.exchange == "gossip" else ()
    fragments = _fragment_statuses(manifest, newest, mixing)
    rounds = sum(fragment.version for fragment in fragments)
    last = manifest.settings.stop_after_rounds
    done = (head is not None and head.done) or (last is not None and rounds >= last)
    return RunStatus(
        run=manifest.run,
        created_at=manifest.created_at,
        created_by=manifest.created_by,
        program=manifest.program,
        state="done" if done else "running" if stop_reason is None else "stopping",
        stop_reason=stop_reason,
        rounds=rounds,
        settings=manifest.settings,
        closer=closer,
        fragments=fragments,
        learners=learners,
        notices=() if done else tuple(_notices(manifest.settings, closer, learners)),
    )


def _fragment_statuses(
    manifest: Manifest,
    commits: Sequence[RoundRecord | None],
    mixing: Sequence[LearnerStatus],
) -> tuple[FragmentStatus, ...]:
    numel = {spec.name: math.prod(spec.shape) for spec in manifest.tensors}
    return tuple(
        FragmentStatus(
            fragment=fragment,
            version=commit.version if commit else _said(fragment, mixing),
            tensors=len(spec.entries),
            elements=sum(numel[entry.name] for entry in spec.entries),
            params_bytes=(commit or spec).params.size_bytes,
            commit=commit,
        )
        for fragment, (spec, commit) in enumerate(zip(manifest.fragments, commits, strict=True))
    )


def _said(fragment: int, mixing: Sequence[LearnerStatus]) -> int:
    """Return the newest version that a learner says it is at."""
    said = (learner.presence.versions[fragment:] for learner in mixing)
    return max((versions[0] for versions in said if versions), default=0)


async def _learners(
    mailbox: Mailbox, manifest: Manifest, now_s: float
) -> tuple[LearnerStatus, ...]:
    names = await mailbox.learners()
    presences = await asyncio.gather(*(mailbox.presence(name) for name in names))
    return tuple(
        _learner(presence, now_s - presence.seen_at, manifest.settings)
        for presence in presences
        if presence is not None and presence.run == manifest.run
    )


def _learner(presence: Presence, age_s: float, settings: RunSettings) -> LearnerStatus:
    silent = age_s > settings.presence_s
    return LearnerStatus(
        name=presence.learner,
        state="left" if presence.left else "silent" if silent else "live",
        age_s=age_s,
        presence=presence,
    )


async def _closer(mailbox: Mailbox) -> CloserStatus | None:
    term = await mailbox.newest_term()
    beat = await mailbox.beat(term) if term else None
    if beat is None:
        return None
    return CloserStatus(name=beat.closer, term=beat.term, beats=beat.count, released=beat.released)


def _notices(
    settings: RunSettings, closer: CloserStatus | None, learners: Sequence[LearnerStatus]
) -> Iterator[str]:
    by_closer = settings.exchange == "closer"
    if by_closer and (closer is None or closer.released):
        yield "no closer holds the lease: start one with `gradientmail closer`"
    live = sum(learner.state == "live" for learner in learners)
    if settings.exchange == "nobody":
        yield 'exchange = "nobody": learners write nothing here, and cannot be seen'
    elif not live:
        yield "no learner is live: start one with `gradientmail learner`"
    elif not by_closer and len(learners) < settings.quorum:
        yield (
            f"quorum = {settings.quorum}, but {len(learners)} learners have shown: nothing is "
            "mixed before"
        )
    elif by_closer and live < settings.quorum:
        yield (
            f"quorum = {settings.quorum}, but {live} learners are live: every round waits for its "
            "timeout before it closes with what there is"
        )
