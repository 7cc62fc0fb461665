"""Gossip: a learner's side of the store in a run without a closer.

A learner closes its rounds by itself. It posts the parameters of the fragment whose round is due,
waits for those of its neighbours in that round, mixes them, and hands the result to its own
training side as the fragment's next version::

    draft -- posted --> waiting -- every neighbour heard, gone or late --> mixed --> arrival

Versions are a learner's own: learners in one round have the same number and, until they agree,
different parameters. Who has to be waited for is not known from the start: whoever is live, or has
posted in the round, is in its graph. A neighbour that is not heard gives nothing in that round,
and what it would have given the learner keeps of its own. A learner that others have left behind
goes on in the round they are in.
"""

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gradientmail.algorithm import FAST, SLOW
from gradientmail.clock import fresh_nonce
from gradientmail.learner.desk import Desk
from gradientmail.learner.ending import Ending
from gradientmail.learner.neighbours import Neighbours, Posting, Vectors, own_version
from gradientmail.learner.peers import Peers
from gradientmail.learner.posts import Arrival, Draft, Progress
from gradientmail.learner.presence import Beats
from gradientmail.protocol.recovery import last_repeatable, posts_kept
from gradientmail.protocol.topology import mixing
from gradientmail.records import keys
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.run import Version
from gradientmail.tasks import together


@dataclass
class Unsent:
    """What of ours is not in the store yet: what an ``Outbox`` is to other learners.

    Attributes:
        residuals: Of each fragment what mixing keeps from round to round: momentum.
    """

    residuals: list[Tensor | None]
    device: torch.device
    keys: set[str] = field(default_factory=set)
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)

    def state(self) -> dict[str, Any] | None:
        """Return a tree for ``restore``; None until everything posted is acknowledged."""
        return None if self.keys else {"residuals": list(self.residuals)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
        residuals: list[Tensor | None] = state["residuals"]
        self.residuals[:] = [one if one is None else one.to(self.device) for one in residuals]

    @property
    def settled(self) -> bool:
        """Whether all of it is."""
        return not self.keys

    async def until_settled(self) -> None:
        """Return once it is."""
        while not self.settled:
            self.acknowledged.clear()
            await self.acknowledged.wait()


@dataclass(frozen=True)
class Heard:
    """What a round gave: our weights, what neighbours posted, and how far they seem to be.

    Attributes:
        newest: Which version those whom we follow posted last; by the names of posts alone,
            which nobody has read.
    """

    weights: Mapping[str, float]
    vectors: Mapping[str, Vectors]
    newest: int


@dataclass(frozen=True)
class Mixed:
    """What a round made of our parameters.

    Attributes:
        divergence: How far they were from it, in parts of its length.
    """

    params: Tensor
    momentum: Tensor | None
    divergence: float


class Gossip(Ending):
    """Create it inside a running loop, ``join``, then ``run``; see ``exchange.Exchange``."""

    def __init__(self, desk: Desk, *, news: Callable[[], None]) -> None:
        super().__init__(desk, news)
        layouts = desk.run.layouts
        self.outbox = Unsent([None] * len(layouts), desk.device)
        self.calling: frozenset[int] = frozenset()
        self.asked: frozenset[int] | None = None
        self.progress = Progress(at=desk.clock.now(), versions=(0,) * len(layouts))
        self._settings = desk.run.manifest.settings
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._neighbours, self._peers = Neighbours(desk), Peers(desk)
        self._divergence: float | None = None
        self._beats = Beats(
            desk, lambda: dataclasses.replace(self.progress, divergence=self._divergence)
        )
        self._arrivals: dict[int, tuple[Arrival, Tensor | None]] = {}
        self._orders: asyncio.Queue[Posting | asyncio.Task[None]] = asyncio.Queue()

    # -- for the training side ---------------------------------------------------------------

    def post(self, draft: Draft) -> None:
        """Post a fragment's parameters and mix them with the neighbours'."""
        held, fragment = self._held[draft.fragment], draft.fragment
        if held.version.number > draft.base.number:
            return  # of an earlier self: what it joined at is on its way to the training side
        slow, version = held.params, draft.base.number + 1
        self.outbox.keys.add(keys.gossip(fragment, version, self._desk.name))
        posting = Posting(
            fragment=fragment, version=version, fast=slow - draft.delta, slow=slow, draft=draft
        )
        self._loop.call_soon_threadsafe(self._orders.put_nowait, posting)

    def take(self) -> tuple[list[Arrival], list[tuple[str, str]]]:
        """Return what arrived since the last call; nothing is ever refused."""
        with self._lock:
            arrivals, self._arrivals = self._arrivals, {}
        for fragment, (_, momentum) in arrivals.items():
            self.outbox.residuals[fragment] = momentum
        return [arrival for arrival, _ in arrivals.values()], []

    def give_back(self, fragment: int, key: str) -> None:
        """Give nothing back: local parameters hold every step."""

    def owe(self, fragment: int, vector: Tensor) -> None:
        """Owe nothing: local parameters hold every step."""

    def forget(self, key: str) -> None:
        """Forget nothing: nothing is kept of what was posted."""

    def start_over(self, fragment: int) -> None:
        """Drop no residual: there is none."""

    # -- joining, running, leaving -----------------------------------------------------------

    async def join(self, held: Mapping[int, Arrival]) -> None:
        """Take ``held``, or what neighbours posted last where that is further.

        What is not held begins with what anyone posted last, or with the run.
        """
        for fragment in range(len(self._run.layouts)):
            arrival = held.get(fragment)
            at = arrival.version.number if arrival else 0
            beyond = last_repeatable(at, keep_versions=self._settings.keep_versions)
            whom = None if arrival is None else await self._followed_after(fragment, at)
            ahead = await self._neighbours.newest(fragment, beyond, whom)
            if ahead is not None and arrival is not None:
                record = self._record(ahead.version, None)
                version = dataclasses.replace(ahead.version, record=record)
                ahead = Arrival(version=version, params=ahead.params, history=(record,))
            if ahead is not None or arrival is None:
                arrival = ahead or await self._neighbours.origin(fragment)
                self._arrivals[fragment] = arrival, None
            self._held[fragment] = arrival
        self._look_for_last_round()

    async def run(self) -> None:
        """Mix and beat until cancelled."""
        await together(self._serve(), self._beats.run(self._look_for_stop))

    async def leave(self) -> None:
        """Say that we are gone, so that no neighbour waits for us."""
        await self._beats.put(left=True)

    async def _serve(self) -> None:
        rounds: set[asyncio.Task[None]] = set()
        try:
            while True:
                order = await self._orders.get()
                if isinstance(order, asyncio.Task):
                    rounds.discard(order)
                    order.result()
                else:
                    task = asyncio.create_task(self._close(order))
                    task.add_done_callback(self._orders.put_nowait)
                    rounds.add(task)
        finally:
            for task in rounds:
                task.cancel()

    # -- one round ---------------------------------------------------------------------------

    async def _close(self, posting: Posting) -> None:
        fragment = posting.fragment
        await self._neighbours.post(posting)
        self.outbox.keys.discard(keys.gossip(fragment, posting.version, self._desk.name))
        self.outbox.acknowledged.set()
        heard = await self._listen(posting)
        momentum = self.outbox.residuals[fragment]
        mixed: Mixed = await self._desk.offload(self._mix, posting, heard, momentum)
        version = own_version(self._run, fragment, await self._goes_on_at(posting, heard))
        record = self._record(version, posting)
        version = dataclasses.replace(version, record=record)
        arrival = Arrival(version=version, params=mixed.params, history=(record,))
        with self._lock:
            self._held[fragment] = arrival
            self._arrivals[fragment] = arrival, mixed.momentum
        self._divergence = mixed.divergence
        self._look_for_last_round()
        self._news()
        old = posting.version - posts_kept(self._settings.keep_versions)
        if old > 0 and not self._settings.retain:
            await self._neighbours.sweep(fragment, old)

    async def _goes_on_at(self, posting: Posting, heard: Heard) -> int:
        """Return which version ours is now; where those we follow may have swept it, theirs.

        We follow a post that we have read, never a name.
        """
        base, keep_versions = posting.version - 1, self._settings.keep_versions
        beyond = last_repeatable(base, keep_versions=keep_versions)
        ahead = None
        if heard.newest > beyond:
            whom = self._followed(heard.weights)
            ahead = await self._neighbours.newest(posting.fragment, beyond, whom)
        return posting.version if ahead is None else ahead.version.number - 1

    async def _listen(self, posting: Posting) -> Heard:
        """Wait until every neighbour has posted, has gone, or the grace window is over."""
        began, ours = self._desk.clock.now(), self._desk.name
        found: dict[str, Vectors] = {}
        while True:
            await self._neighbours.persist(self._peers.look)
            posted = await self._neighbours.posted(posting.fragment, posting.version)
            here = {name for name, versions in posted.items() if posting.version in versions}
            row = self._row(posting.fragment, posting.version, here)
            others = row.keys() - {ours}
            for name in sorted((others & here) - found.keys()):
                vectors = await self._neighbours.read(posting.fragment, posting.version, name)
                if vectors is None:
                    here.discard(name)
                else:
                    found[name] = vectors
            if self._is_over(began, others - found.keys(), posted.keys() - here, here):
                heard = {name: found[name] for name in sorted(others & found.keys())}
                whom = posted.keys() & (self._followed(row) or posted.keys())
                newest = max((max(posted[name]) for name in whom), default=0)
                return Heard(weights=row, vectors=heard, newest=newest)
            await self._desk.clock.sleep(self._settings.poll_s)

    async def _followed_after(self, fragment: int, version: int) -> Collection[str] | None:
        """Return whom one follows that is in ``version``; as ``_followed``."""
        await self._neighbours.persist(self._peers.look)
        posted = await self._neighbours.posted(fragment, version + 1)
        here = {name for name, versions in posted.items() if version + 1 in versions}
        return self._followed(self._row(fragment, version + 1, here))

    def _followed(self, row: Mapping[str, float]) -> Collection[str] | None:
        """Return our neighbours, with our earlier selves; None where we have none: anyone."""
        return row.keys() if len(row) > 1 else None

    def _row(self, fragment: int, version: int, here: set[str]) -> Mapping[str, float]:
        """Return our weights in a round in which ``here`` have posted."""
        turn = f"{self._run.name}/{self._run.algorithm.schedule.round_of(fragment, version)}"
        names = [*self._peers.live | here]
        return mixing(self._run.algorithm.topology, names, turn)[self._desk.name]

    def _is_over(self, began: float, missing: set[str], beyond: set[str], here: set[str]) -> bool:
        """Whether to mix now; ``beyond``: who has nothing in this round and is in a later one."""
        grace_s = self._settings.grace_s
        if grace_s is not None and self._desk.clock.now() - began >= grace_s:
            return True
        return len(self._peers.known | here) >= self._settings.quorum and missing <= beyond

    def _mix(self, posting: Posting, heard: Heard, momentum: Tensor | None) -> Mixed:
        """Mix; what rounding loses of ours stays with us, so that the mean of all stays."""
        mine = self._neighbours.as_posted(posting)
        fast = [mine[FAST], *(one[FAST] for one in heard.vectors.values())]
        slow = [mine.get(SLOW, posting.slow)]
        slow += [one[SLOW] for one in heard.vectors.values() if SLOW in one]
        weights = [heard.weights[name] for name in heard.vectors]
        rule = self._run.algorithm.gossip
        mixed, kept = rule.mix([1.0 - sum(weights), *weights], slow, fast, momentum)
        end = self._run.layouts[posting.fragment].parameters_end
        return Mixed(
            params=mixed + (posting.fast - fast[0]),
            momentum=kept,
            divergence=_divergence(fast[0][:end], mixed[:end]),
        )

    def _record(self, version: Version, posting: Posting | None) -> RoundRecord:
        """Return a commit that nobody else sees: it tells our training side what became of it."""
        used = () if posting is None else (self._participant(posting),)
        return RoundRecord(
            run=self._run.name,
            fragment=version.fragment,
            version=version.number,
            parent=version.digest,
            params=version.params,
            participants=used,
            applied={one.learner: one.base for one in used},
            closer=self._desk.name,
            term=0,
            nonce=fresh_nonce(self._desk.rng),
        )

    def _participant(self, posting: Posting) -> Participant:
        draft, trained = posting.draft, posting.draft.trained
        return Participant(
            learner=self._desk.name,
            incarnation=self._desk.incarnation,
            nonce=draft.nonce,
            base=posting.version - 1,
            steps=trained.steps,
            tokens=trained.tokens,
            samples=trained.samples,
            weight=1.0,
            norm=0.0,
            clip=1.0,
            key=keys.gossip(posting.fragment, posting.version, self._desk.name),
            digest=self._run.digest,
        )


def _divergence(mine: Tensor, mixed: Tensor) -> float:
    length = float(torch.linalg.vector_norm(mixed, dtype=torch.float64))
    apart = float(torch.linalg.vector_norm(mine - mixed, dtype=torch.float64))
    return min(apart / length, 1e30) if length else 0.0
