"""Bugs to be planted, each of which the simulator must find: they prove that it looks.

    with planted("commit-by-overwrite"):
        assert any(judged_seed(seed).wrong for seed in range(10))

``HARMLESS`` are changes under which nothing may break: the lease only saves work.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from gradientmail.closer import collecting
from gradientmail.closer.intake import Accepted
from gradientmail.closer.sweeper import Sweeper
from gradientmail.errors import StoreUnavailableError
from gradientmail.learner import training
from gradientmail.learner.exchange import Exchange
from gradientmail.mailbox import Mailbox
from gradientmail.protocol import election
from gradientmail.protocol.closing import Closing, Decision, Look
from gradientmail.protocol.judging import Round
from gradientmail.protocol.recovery import Echo, Fate
from gradientmail.protocol.sweeping import Sweeping
from gradientmail.records import canonical, keys
from gradientmail.records.commit import RoundRecord
from gradientmail.run import Run, Version
from gradientmail.store.base import Created
from gradientmail.store.retrying import RetryingStore

Patch = tuple[object, str, Any]


def _commit_by_overwrite() -> list[Patch]:
    """The commit is written, whoever has written it before."""

    async def create_commit(self: Mailbox, record: RoundRecord) -> Created:
        key = keys.commit(record.fragment, record.version)
        await self.store.put(key, [canonical.encode(record)])
        return Created.CREATED

    return [(Mailbox, "create_commit", create_commit)]


def _timeout_is_failure() -> list[Patch]:
    """A commit without an answer has failed: its payloads are cleaned up, another one follows."""

    async def create_commit(self: Mailbox, record: RoundRecord) -> Created:
        key, bare = keys.commit(record.fragment, record.version), vars(self.store)["_inner"]
        try:
            created: Created = await bare.create(key, canonical.encode(record))
        except StoreUnavailableError:
            if not record.empty:
                refs = (record.params, record.outer, record.update)
                await self.store.delete([ref.key for ref in refs if ref is not None])
            raise
        return created

    return [(Mailbox, "create_commit", create_commit)]


def _exists_is_ours() -> list[Patch]:
    """EXISTS is taken for the echo of our own lost answer, without a look."""

    async def create(self: RetryingStore, key: str, data: bytes) -> Created:
        await vars(self)["_inner"].create(key, data)
        return Created.CREATED

    return [(RetryingStore, "_create", create)]


def _fixed_payload_names() -> list[Patch]:
    """The payloads of a version have the same names, whoever uploads them."""
    named = keys.payload

    def payload(fragment: int, version: int, nonce: str, role: str) -> str:
        return named(fragment, version, "0" * len(nonce), role)

    return [(keys, "payload", payload)]


def _counted_by_key() -> list[Patch]:
    """Contributions are told apart by their random keys, and each one counts."""

    def all_of_them(accepted: Sequence[Accepted]) -> tuple[Accepted, ...]:
        return tuple(sorted(accepted, key=lambda one: one.key))

    return [(collecting, "_one_each", all_of_them)]


def _no_applied() -> list[Patch]:
    """Late mail counts as long as its base does, used before or not."""

    def reads(self: Round, key: keys.MailKey) -> bool:
        return key.base in self.anchors

    return [(Round, "reads", reads)]


def _carried_though_applied() -> list[Patch]:
    """A learner carries its steps on without looking whether they were used."""

    def fate(*_: object, **__: object) -> Fate:
        return Fate.DROPPED

    return [(training, "fate", fate)]


def _no_echo() -> list[Patch]:
    """A restored learner does not think of what its earlier self may have posted."""

    def echo(*_: object, **__: object) -> Echo:
        return Echo.NONE

    return [(training, "echo", echo)]


def _swept_commits() -> list[Patch]:
    """The sweep takes old commits along."""
    sweep = Sweeper.sweep

    async def sweep_all(self: Sweeper, head: Version) -> None:
        await sweep(self, head)
        mine = vars(self)
        old = range(1, mine["_sweeping"].boundary + 1)
        store = mine["_desk"].run.mailbox.store
        await store.delete([keys.commit(mine["_fragment"], version) for version in old])

    return [(Sweeper, "sweep", sweep_all)]


def _swept_unreferenced() -> list[Patch]:
    """The sweep takes every payload that no commit names now."""

    def payloads(
        _: Sweeping, listing: Sequence[tuple[int, str]], referenced: Collection[str]
    ) -> tuple[str, ...]:
        return tuple(key for _, key in listing if key not in referenced)

    return [(Sweeping, "payloads", payloads)]


def _trusted_head() -> list[Patch]:
    """What the head hint says is the newest version, and there is none but what it tells of."""

    async def newest(self: Run, fragment: int, hint: int = 0) -> Version:
        return await self.version(fragment, hint) or self.origin(fragment)

    def overdue(_: Exchange) -> list[int]:
        return []

    return [(Run, "newest", newest), (Exchange, "_overdue", overdue)]


def _blind_closer() -> list[Patch]:
    """A closer that collects never looks whether the version is committed."""
    observe = Closing.observe

    def observe_blindly(self: Closing, look: Look) -> tuple[Closing, Decision]:
        return observe(self, replace(look, committed=False))

    return [(Closing, "observe", observe_blindly)]


def _no_lease() -> list[Patch]:
    """Everyone holds the lease at once, for good."""

    def decide(self: election.Holder, now: float, newest_term: int) -> object:
        del newest_term
        due = self.renewed_at + self.lease_s
        return election.Beat() if now >= due else election.Wait(until=due)

    return [
        (election.Watcher, "expired", property(lambda _: True)),
        (election.Holder, "decide", decide),
    ]


def _wrong_clock() -> list[Patch]:
    """To a candidate every lease has run out at the second look; to its holder none ever does."""

    def decide(self: election.Holder, now: float, newest_term: int) -> object:
        if newest_term > self.term:
            return election.StepDown(reason="a newer term was taken")
        due = self.renewed_at + self.lease_s / election.BEATS_PER_LEASE
        return election.Beat() if now >= due else election.Wait(until=due)

    return [
        (election.Watcher, "expired", property(lambda self: self.looks > 1)),
        (election.Holder, "decide", decide),
    ]


BUGS: Final[dict[str, Callable[[], list[Patch]]]] = {
    "commit-by-overwrite": _commit_by_overwrite,
    "timeout-is-failure": _timeout_is_failure,
    "exists-is-ours": _exists_is_ours,
    "fixed-payload-names": _fixed_payload_names,
    "counted-by-key": _counted_by_key,
    "no-applied": _no_applied,
    "carried-though-applied": _carried_though_applied,
    "no-echo": _no_echo,
    "swept-commits": _swept_commits,
    "swept-unreferenced": _swept_unreferenced,
    "trusted-head": _trusted_head,
    "blind-closer": _blind_closer,
}
HARMLESS: Final = {"no-lease": _no_lease, "wrong-clock": _wrong_clock}


@contextlib.contextmanager
def planted(*names: str) -> Iterator[None]:
    """Plant what ``names`` say for as long as the context lasts."""
    with contextlib.ExitStack() as stack:
        for name in names:
            for owner, attribute, value in (BUGS | HARMLESS)[name]():
                stack.callback(setattr, owner, attribute, getattr(owner, attribute))
                setattr(owner, attribute, value)
        yield
