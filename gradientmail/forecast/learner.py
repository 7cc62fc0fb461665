"""A learner of a forecast: the protocol's decisions at step boundaries, and a line to the store.

Nothing happens between two steps at which a decision can change, so those in between are skipped:

    AWAY -- join --> JOINING -- every fragment fetched --> TRAINING <-- commit -- WAITING
                                                           TRAINING -- Hold ----> WAITING
    any -- interruption --> AWAY, and back after a while; any -- leave --> GONE
"""

import math
import random
from collections.abc import Callable

from gradientmail.forecast.deciding import at_the_start, fate_of, next_decision
from gradientmail.forecast.fleet import DAY_S, Learners
from gradientmail.forecast.ground import Ground
from gradientmail.forecast.ledger import Account, Lane
from gradientmail.forecast.local import IDLE, Counts, Local, Mail, State, Times
from gradientmail.forecast.looking import Looking
from gradientmail.forecast.trace import Doing
from gradientmail.learner.presence import BEATS_PER_PRESENCE
from gradientmail.protocol.publishing import Hold, Publish
from gradientmail.protocol.recovery import Fate

MANIFEST_READS = 2
HEAD_AND_COMMIT = 2
"""Reads, one after another, before a payload can be."""

EPSILON = 1e-9
"""Of a step: how far an instant may be from a boundary and still be it."""


class Learner:
    """One member of a group.

    Args:
        chance: Draws its interruptions, whatever the settings are.
        post: Takes a contribution once the store has acknowledged it.
        changed: Called when it comes, goes or falls silent.
    """

    def __init__(
        self,
        ground: Ground,
        group: Learners,
        name: str,
        *,
        chance: random.Random,
        post: Callable[[Mail], None],
        changed: Callable[[], None],
    ) -> None:
        self.name, self.group = name, group
        self.times, self.counts, self.account = Times(), Counts(), Account()
        self.state = State.AWAY
        spread = group.step_spread
        self.step_s = group.step_s * chance.uniform(1.0 - spread, 1.0 + spread)
        self._ground, self._chance = ground, chance
        self._post, self._changed = post, changed
        self._schedule = ground.algorithm.schedule
        self.up, self.down = Lane(group.up_bytes_s), Lane(group.down_bytes_s)
        self._fragments = [
            Local(share=one.numel / ground.sizes.numel) for one in ground.sizes.fragments
        ]
        self.publishing = at_the_start(self._schedule)
        self._looking = Looking(ground)
        self.life = 0
        self._step, self._since, self._planned = 0, 0.0, 0
        self._arrivals: dict[int, int] = {}
        self._following: set[int] = set()
        self._calling: frozenset[int] = frozenset()
        self._unsent: list[Mail] = []
        self._beats_from, self._beats = 0.0, 0

    # -- coming and going --------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The name it posts under: without a state directory each life has its own."""
        return self.name if self.group.keeps_state else f"{self.name}.{self.life}"

    @property
    def present(self) -> bool:
        """Whether it can be seen."""
        return self.state in (State.TRAINING, State.WAITING)

    @property
    def looks(self) -> float:
        """How often it looked at the head."""
        return self._looking.looks

    def tag(self, now: float) -> str:
        """Return what a listing shows of its presence."""
        if self.present:
            every_s = self._ground.settings.presence_s / BEATS_PER_PRESENCE
            self._beats = int((now - self._beats_from) / every_s)
        return f"{self.life}-{self._beats}"

    def join(self) -> None:
        """Read the manifest and bring every fragment in."""
        ground, sizes = self._ground, self._ground.sizes
        self.life += 1
        self.state, self._since = State.JOINING, ground.now
        self.account.get(sizes.manifest, MANIFEST_READS)
        self.account.get(sizes.head)
        fetched = ground.now + (MANIFEST_READS + 1) * ground.latency_s
        for p, local in enumerate(self._fragments):
            newest = ground.versions[p]
            self.account.get(ground.commit_bytes(p, newest))
            fetched += ground.latency_s
            if newest > local.held or self.life == 1 or not self.group.keeps_state:
                self.account.get(sizes.fragments[p].params)
                _, done = self.down.take(sizes.fragments[p].params, fetched)
                fetched = max(fetched, done)
            local.held = newest
        ground.agenda.at(fetched + ground.latency_s, self._joined, self.life)
        self._note_interruption()

    def _joined(self, life: int) -> None:
        if life != self.life or self.state is not State.JOINING:
            return
        ground = self._ground
        self._spend(Doing.JOINING)
        self._beats_from = ground.now
        fresh = self.life == 1 or not self.group.keeps_state
        for p, local in enumerate(self._fragments):
            if fresh:
                self.publishing = self.publishing.aligned(p, local.held, 0)
            elif local.held > self.publishing.versions[p]:
                self._arrivals[p] = local.held
        self._looking.begin()
        for mail in self._unsent:
            self._upload(mail)
        self.state = State.TRAINING
        self._changed()
        self._settle()
        if any(ground.versions[p] > local.held for p, local in enumerate(self._fragments)):
            self.hear()

    def _note_interruption(self) -> None:
        if self.group.interruptions_per_day:
            in_s = self._chance.expovariate(self.group.interruptions_per_day / DAY_S)
            self._ground.agenda.at(self._ground.now + in_s, self._interrupted, self.life)

    def _interrupted(self, life: int) -> None:
        """Be taken away at once: what was not saved or posted is lost."""
        if life != self.life or self.state in (State.AWAY, State.GONE):
            return
        self.tag(self._ground.now)
        self._stop()
        self.counts.interruptions += 1
        if not self.group.keeps_state:
            self._forget_all()
        self.state, self._since = State.AWAY, self._ground.now
        self._ground.agenda.at(
            self._ground.now + self.group.interruption_s, self._come_back, self.life
        )
        self._changed()

    def _come_back(self, life: int) -> None:
        if life == self.life and self.state is State.AWAY:
            self._spend(Doing.AWAY)
            self.join()

    def leave(self) -> None:
        """Leave in good order; what is not posted by then is posted as final, or lost."""
        was_here = self.present
        self._stop(orderly=True)
        for p in range(len(self._fragments)):
            steps = self._unposted(p)
            if steps > 0 and was_here and self._ground.settings.flush_on_close:
                self._publish(self._schedule.round_of(p, self.publishing.versions[p] + 1))
            else:
                self._waste(steps, p)
        self.state = State.GONE
        self._changed()

    def end(self) -> None:
        """The forecast ends here: count what is going on."""
        if self.present:
            self._looking.catch_up()
        for local in self._fragments:
            self.times.carried += local.carried * local.share * self.step_s
        if self.state is State.TRAINING:
            self._train_until(self._step + self._whole_steps())
            self.times.trained += self._ground.now - self._since
        elif self.state in IDLE and self.life:
            self._spend(IDLE[self.state])

    def _stop(self, *, orderly: bool = False) -> None:
        """Stop what is going on. A step half done is lost, and so is what was not saved."""
        now = self._ground.now
        self._looking.catch_up()
        if self.state is State.TRAINING:
            whole = self._whole_steps()
            kept = whole
            if not orderly and self.group.keeps_state:
                saved_s = (now - self._since) // self.group.save_every_s * self.group.save_every_s
                kept = min(whole, int(saved_s / self.step_s + EPSILON))
            self._ground.trace.span(self.name, Doing.TRAINING, self._since, now)
            self.times.trained += now - self._since
            self.times.wasted += now - self._since - kept * self.step_s
            self.counts.steps += whole
            self._step += kept
        elif self.state in IDLE:
            self._spend(IDLE[self.state])
        self._planned += 1
        self._following.clear()
        self._arrivals.clear()
        for p, local in enumerate(self._fragments):
            local.held = self.publishing.versions[p]

    def _forget_all(self) -> None:
        for p, local in enumerate(self._fragments):
            self._waste(self._unposted(p), p)
            local.snapshot, local.posted, local.carried = None, [], 0
        self._unsent, self._step = [], 0
        self.publishing = at_the_start(self._schedule)

    # -- training ----------------------------------------------------------------------------

    def _spend(self, doing: Doing) -> None:
        """Enter the time since ``_since``, and begin anew."""
        now = self._ground.now
        seconds = now - self._since
        self._ground.trace.span(self.name, doing, self._since, now)
        self.times.spend(doing, seconds)
        self._since = now

    def _whole_steps(self) -> int:
        return int((self._ground.now - self._since) / self.step_s + EPSILON)

    def _train_until(self, step: int) -> None:
        """Enter the steps up to ``step``, at whose end we are or just were."""
        took_s = (step - self._step) * self.step_s
        self._ground.trace.span(self.name, Doing.TRAINING, self._since, self._since + took_s)
        self.times.trained += took_s
        self.counts.steps += step - self._step
        self._since += took_s
        self._step = step

    def _boundary(self, life: int, plan: int, step: int) -> None:
        if life == self.life and plan == self._planned and self.state is State.TRAINING:
            self._train_until(step)
            self._settle()

    def _settle(self) -> None:
        """Align with what arrived, publish what is due, and train on or wait."""
        for p, version in self._arrivals.items():
            self._align(p, version)
        self._arrivals.clear()
        while isinstance(decision := self.publishing.decide(self._step, self._calling), Publish):
            self._publish(decision.round_index)
        self._since = self._ground.now
        self._planned += 1
        self._looking.hold(holding=isinstance(decision, Hold))
        if isinstance(decision, Hold):
            self.state = State.WAITING
            return
        self.state = State.TRAINING
        step = next_decision(self.publishing, self._step, self._calling)
        if step is not None:
            self._plan(step)

    def _plan(self, step: int) -> None:
        self._planned += 1
        at = self._since + (step - self._step) * self.step_s
        self._ground.agenda.at(at, self._boundary, self.life, self._planned, step)

    def _news(self) -> None:
        """Something may change a decision: settle at the next boundary, or now when waiting."""
        if self.state is State.WAITING:
            self._spend(Doing.WAITING)
            self._settle()
        elif self.state is State.TRAINING:
            since_s = self._ground.now - self._since
            self._plan(self._step + max(1, math.ceil(since_s / self.step_s - EPSILON)))

    # -- posting -----------------------------------------------------------------------------

    def _publish(self, round_index: int) -> None:
        p = self._schedule.fragment_of(round_index)
        local, base = self._fragments[p], self.publishing.versions[p]
        steps = self._step - self.publishing.anchored_at[p]
        mail = Mail(self.identity, p, base, steps, self.step_s)
        local.snapshot = self._step
        local.posted.append(mail)
        self.publishing = self.publishing.published(round_index, self._step)
        self.counts.posted += 1
        self._unsent.append(mail)
        self._upload(mail)

    def _upload(self, mail: Mail) -> None:
        ground = self._ground
        self._looking.posted(mail.fragment)
        size_bytes = ground.sizes.fragments[mail.fragment].contribution
        start, end = self.up.take(size_bytes, ground.now)
        ground.trace.span(self.name, Doing.UPLOADING, start, end)
        ground.agenda.at(end + ground.latency_s, self._acknowledged, self.life, mail, size_bytes)

    def _acknowledged(self, life: int, mail: Mail, size_bytes: int) -> None:
        if life != self.life or self.state is State.AWAY:
            return
        self._unsent.remove(mail)
        self.account.put(size_bytes)
        self._post(mail)

    # -- following ---------------------------------------------------------------------------

    def hear(self) -> None:
        """The head has changed: it is seen at the next look."""
        if self.present and (at := self._looking.next_look()) is not None:
            self._ground.agenda.at(at, self._look, self.life)

    def _look(self, life: int) -> None:
        if life != self.life or not self.present:
            return
        self._looking.looked()
        ground = self._ground
        self._calling = ground.calling
        if self.publishing.next_round() in self._calling:
            self._looking.called(self.publishing.steps_to_due(self._step) * self.step_s)
            self._news()
        for p, local in enumerate(self._fragments):
            if ground.versions[p] > local.held and p not in self._following:
                self._following.add(p)
                told = ground.now + HEAD_AND_COMMIT * ground.latency_s
                ground.agenda.at(told, self._catch_up, self.life, p)

    def _catch_up(self, life: int, p: int) -> None:
        """Fetch the newest version, by its update where that leads on."""
        if life != self.life or not self.present:
            return
        ground, local = self._ground, self._fragments[p]
        newest = ground.versions[p]
        self.account.get(ground.commit_bytes(p, newest))
        for number in range(local.held + 1, newest):
            if number <= local.held + self._ground.settings.max_staleness:
                self.account.get(ground.commit_bytes(p, number))
        self._looking.seen(p)
        sizes, at = ground.sizes.fragments[p], ground.now
        if not all(ground.commit(p, n).empty for n in range(local.held + 1, newest + 1)):
            size_bytes = sizes.step if newest == local.held + 1 else sizes.params
            self.account.get(size_bytes)
            start, end = self.down.take(size_bytes, ground.now)
            ground.trace.span(self.name, Doing.FETCHING, start, end)
            at = end + ground.latency_s
        ground.agenda.at(at, self._arrive, self.life, p, newest)

    def _arrive(self, life: int, p: int, version: int) -> None:
        if life != self.life or not self.present:
            return
        self._following.discard(p)
        self._fragments[p].held = version
        self._arrivals[p] = version
        self._news()
        if self._ground.versions[p] > version:
            self.hear()

    # -- aligning ----------------------------------------------------------------------------

    def _unposted(self, p: int) -> int:
        """Return the steps on fragment ``p`` that no contribution holds."""
        local = self._fragments[p]
        since = self.publishing.anchored_at[p] if local.snapshot is None else local.snapshot
        return self._step - since

    def _waste(self, steps: int, p: int) -> None:
        self.times.wasted += max(0, steps) * self.step_s * self._fragments[p].share

    def _align(self, p: int, version: int) -> None:
        local, rest = self._fragments[p], self._unposted(p)
        if local.snapshot is not None:
            self.counts.stale_steps += rest
            self.counts.aligned += 1
        keeps, posted = self._ground.algorithm.alignment.keeps, bool(local.posted)
        given_back = self._resolve(p, version)
        if posted or not keeps:
            local.carried = given_back
        kept = rest if keeps else 0
        self._waste(rest - kept, p)
        local.snapshot = None
        self.publishing = self.publishing.aligned(p, version, self._step - kept - given_back)

    def _resolve(self, p: int, version: int) -> int:
        """Learn what became of what was posted; return the steps to carry on."""
        local, pending, steps = self._fragments[p], list[Mail](), 0
        first = self.publishing.versions[p] + 1
        for mail in local.posted:
            match fate_of(mail, range(first, version + 1), self._ground):
                case Fate.PENDING:
                    pending.append(mail)
                case Fate.DROPPED:
                    self.counts.dropped += 1
                    steps += mail.steps
                case _:
                    self.counts.used += 1
        local.posted = pending
        return steps
