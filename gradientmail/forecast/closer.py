"""The closer of a forecast: rounds side by side, aggregation, commits, sweeps, and takeovers."""

from collections.abc import Callable, Mapping

from gradientmail.closer.sweeper import PIN_PRESENCES
from gradientmail.forecast.collecting import Collecting, Machine
from gradientmail.forecast.fleet import DAY_S, Closers
from gradientmail.forecast.ground import Commit, Ground
from gradientmail.forecast.ledger import Account, Lane
from gradientmail.forecast.local import Mail
from gradientmail.forecast.watch import Watch
from gradientmail.protocol.closing import Closing
from gradientmail.protocol.election import BEATS_PER_LEASE, Look, Stand, Watcher
from gradientmail.protocol.judging import Round
from gradientmail.protocol.pace import typical_step_s
from gradientmail.protocol.polling import Looks
from gradientmail.protocol.publishing import oldest_open_round
from gradientmail.protocol.sweeping import NOTHING_SWEPT, Sweeping

COMMIT_READS = 2
"""Of each fragment's newest commit, when a term begins: the second confirms the first."""

STATE_PASSES = 1
"""Passes over the numbers of a fragment that a round takes beside one for each contribution."""


class Closer:
    """Whoever holds the lease.

    Args:
        tell: Called when the head has changed: learners see it at their next look.
    """

    def __init__(
        self, ground: Ground, group: Closers, watch: Watch, *, tell: Callable[[], None]
    ) -> None:
        self._ground, self._group, self._watch, self._tell = ground, group, watch, tell
        self.machine = Machine(
            up=Lane(group.up_bytes_s),
            down=Lane(group.down_bytes_s),
            compute=Lane(group.numbers_per_s),
            account=Account(),
        )
        fragments = ground.algorithm.schedule.fragments
        self._versions = [0] * fragments
        self._open: dict[int, Collecting] = {}
        self._mail: list[dict[tuple[str, int], Mail]] = [{} for _ in range(fragments)]
        self._calling: set[int] = set()
        self._has_payloads: set[int] = set()
        self._sweeps = [_Sweep(ground, self.machine.account, p) for p in range(fragments)]
        self.staleness: dict[int, int] = {}
        self.round_s: list[float] = []
        self.terms = 0
        self.idle_s = 0.0
        self._lost_at: float | None = 0.0
        self._closed_at = [0.0] * fragments

    # -- terms -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the first term: nobody ever held the lease."""
        self._ground.agenda.at(self._ground.now + 4 * self._ground.latency_s, self._take_office)

    def _take_office(self) -> None:
        """Hold the lease from here on: read where every fragment is, and open its round."""
        ground, account = self._ground, self.machine.account
        self.terms += 1
        self.idle_s += ground.now - (self._lost_at or 0.0)
        self._lost_at = None
        account.listed()
        account.put(ground.sizes.beat, 2)
        account.get(ground.sizes.head)
        for p, version in enumerate(self._versions):
            account.get(ground.commit_bytes(p, version), COMMIT_READS)
            account.get(0)
        self._has_payloads.clear()
        self._put_head()
        self._open_rounds()
        if self._group.interruptions_per_day:
            in_s = ground.rng.expovariate(self._group.interruptions_per_day / DAY_S)
            ground.agenda.at(ground.now + in_s, self._killed, self.terms)

    def _killed(self, term: int) -> None:
        """Die with everything half done; somebody takes over once the lease has run out."""
        if term != self.terms or self._lost_at is not None:
            return
        for collecting in self._open.values():
            collecting.rest()
            self._enter_looks(collecting)
            collecting.closed = True
        self._open.clear()
        now = self._ground.now
        self._lost_at = now
        for lane in (self.machine.up, self.machine.down, self.machine.compute):
            lane.free_at = now
        lease_s = self._ground.settings.lease_s
        alone = self._group.count == 1
        begins = now + self._group.interruption_s if alone else now - lease_s / BEATS_PER_LEASE
        stands_at = takes_over_at(begins, lease_s)
        self._ground.agenda.at(max(now, stands_at), self._take_office)

    # -- rounds ------------------------------------------------------------------------------

    def live_changed(self) -> None:
        """Others are live: open rounds may have waited for that."""
        for collecting in list(self._open.values()):
            collecting.live_changed()

    def post(self, mail: Mail) -> None:
        """A contribution has become visible."""
        size_bytes = self._ground.sizes.fragments[mail.fragment].contribution
        self._ground.stored.add(size_bytes, self._ground.now)
        self._sweeps[mail.fragment].mailed(mail.base, size_bytes)
        self._mail[mail.fragment][mail.learner, mail.base] = mail
        if (collecting := self._open.get(mail.fragment)) is not None:
            collecting.arrived(mail)

    def _open_rounds(self) -> None:
        schedule = self._ground.algorithm.schedule
        horizon = oldest_open_round(schedule, self._versions) + schedule.in_flight
        for p, version in enumerate(self._versions):
            round_index = schedule.round_of(p, version + 1)
            if p not in self._open and round_index < horizon:
                self._open[p] = collecting = self._collecting(p, version, round_index)
                collecting.open(self._mail[p].values())

    def _collecting(self, p: int, version: int, round_index: int) -> Collecting:
        ground, settings = self._ground, self._ground.settings
        oldest = max(0, version - settings.max_staleness)
        judged = Round(
            run="",
            fragment=p,
            version=version + 1,
            anchors=dict.fromkeys(range(oldest, version + 1), ""),
            precision=settings.uplink,
            tensors=0,
            weighs_samples=False,
            applied=ground.commit(p, version).applied if version else {},
        )
        closing = Closing(
            quorum=settings.quorum,
            grace_s=settings.grace_s,
            timeout_s=ground.estimates(p, version).timeout(settings.poll_s),
        )
        return Collecting(
            ground=ground,
            machine=self.machine,
            judged=judged,
            closing=closing,
            looks=Looks(
                poll_s=settings.poll_s, estimates=ground.estimates(p, version), began=ground.now
            ),
            round_index=round_index,
            live=lambda: self._watch.live,
            call=self._call,
            close=self._aggregate,
        )

    def _call(self, round_index: int) -> None:
        if round_index not in self._calling:
            self._calling.add(round_index)
            self._put_head()

    def _aggregate(self, collecting: Collecting, mails: list[Mail]) -> None:
        """Make the next version and upload it: the record goes last."""
        ground, machine, p = self._ground, self.machine, collecting.judged.fragment
        sizes, at = ground.sizes.fragments[p], ground.now
        self._enter_looks(collecting)
        if mails:
            if p not in self._has_payloads:
                outer = sizes.outer if self._versions[p] else 0
                machine.account.fetch(sizes.params)
                if outer:
                    machine.account.fetch(outer)
                _, at = machine.down.take(sizes.params + outer, at)
                at += ground.latency_s
                self._has_payloads.add(p)
            _, at = machine.compute.take(sizes.numel * (len(mails) + STATE_PASSES), at)
            for size_bytes in (sizes.params, sizes.outer, sizes.update or 0):
                if size_bytes:
                    machine.account.put(size_bytes)
            _, at = machine.up.take(sizes.version, at)
            at += ground.latency_s
        term = self.terms
        ground.agenda.at(
            at + ground.latency_s, self._committed, term, collecting, mails, ground.now
        )

    def _enter_looks(self, collecting: Collecting) -> None:
        self.machine.account.get(0, collecting.commit_reads)
        self.machine.account.listed(collecting.listings)

    def _committed(
        self, term: int, collecting: Collecting, mails: list[Mail], began_at: float
    ) -> None:
        if term != self.terms or self._lost_at is not None:
            return  # killed on the way: what was uploaded, no record mentions
        ground, p = self._ground, collecting.judged.fragment
        commit = self._commit(collecting, mails, began_at)
        ground.committed(p, commit)
        self._versions[p] = commit.version
        self.machine.account.put(commit.size_bytes)
        ground.trace.close(ground.now, p, len(mails))
        self.round_s.append(ground.now - self._closed_at[p])
        self._closed_at[p] = ground.now
        for mail in mails:
            behind = commit.version - 1 - mail.base
            self.staleness[behind] = self.staleness.get(behind, 0) + 1
        oldest = commit.version - ground.settings.max_staleness
        self._mail[p] = {key: mail for key, mail in self._mail[p].items() if mail.base >= oldest}
        del self._open[p]
        self._calling.discard(collecting.round_index)
        self._put_head()
        self._open_rounds()
        stored = commit.size_bytes + (ground.sizes.fragments[p].version if mails else 0)
        ground.stored.add(stored, ground.now)
        self._sweeps[p].committed(commit, self._watch.pinned(p))

    def _commit(self, collecting: Collecting, mails: list[Mail], began_at: float) -> Commit:
        ground, p = self._ground, collecting.judged.fragment
        version = self._versions[p]
        before: Mapping[str, int] = collecting.judged.applied
        applied = {**before, **{mail.learner: mail.base for mail in mails}} if mails else before
        quorum_at, opened = collecting.closing.quorum_at, collecting.looks.opened or 0.0
        known = ground.estimates(p, version)
        estimates = known.observed(
            step_s=typical_step_s([mail.step_s for mail in mails], known=known.step_s),
            quorum_s=None if quorum_at is None else max(0.0, quorum_at - opened),
            sync_s=ground.now - began_at,
        )
        return Commit(
            version=version + 1,
            at=ground.now,
            used=frozenset((mail.learner, mail.base) for mail in mails),
            applied=applied,
            size_bytes=ground.sizes.commit_of(len(mails), len(applied)),
            estimates=estimates,
            empty=not mails,
        )

    def _put_head(self) -> None:
        ground = self._ground
        self.machine.account.put(ground.sizes.head)
        news = tuple(self._versions), frozenset(self._calling)
        ground.agenda.at(ground.now + ground.latency_s, self._head_is_there, *news)

    def _head_is_there(self, versions: tuple[int, ...], calling: frozenset[int]) -> None:
        self._ground.versions, self._ground.calling = versions, calling
        self._tell()

    # -- the end -----------------------------------------------------------------------------

    def end(self) -> None:
        """Count what went on beside the rounds, and looks of rounds that are open."""
        ground, account = self._ground, self.machine.account
        if self._lost_at is not None:
            self.idle_s += ground.now - self._lost_at
        for collecting in self._open.values():
            collecting.rest()
            self._enter_looks(collecting)
        beats = int((ground.now - self.idle_s) / ground.settings.lease_s * BEATS_PER_LEASE)
        account.put(ground.sizes.beat, beats)
        account.listed(beats)
        looks = int(self._watch.looks)
        account.listed(looks)
        account.get(0, looks)


def takes_over_at(watches_from: float, lease_s: float) -> float:
    """Return when a candidate that sees the last beat at ``watches_from`` stands for the lease.

    >>> takes_over_at(0.0, 30.0)
    30.0
    """
    watcher, now = Watcher(lease_s=lease_s), watches_from
    while True:
        look = Look(now=now, term=1, beat="the last one", released=False)
        watcher, decision = watcher.observe(look)
        if isinstance(decision, Stand):
            return now
        now = decision.until


class _Sweep:
    """What is deleted of one fragment, and when."""

    def __init__(self, ground: Ground, account: Account, fragment: int) -> None:
        settings = ground.settings
        self._ground, self._account, self._fragment = ground, account, fragment
        self._sweeping = Sweeping(
            keep=max(settings.keep_versions, settings.max_staleness + 1),
            max_pin_s=PIN_PRESENCES * settings.presence_s,
        )
        self._mail: dict[int, int] = {}
        self._payloads: dict[int, int] = {0: ground.sizes.fragments[fragment].params}
        self._named_by = 0

    def mailed(self, base: int, size_bytes: int) -> None:
        """Mail against ``base`` has come."""
        self._mail[base] = self._mail.get(base, 0) + size_bytes

    def committed(self, commit: Commit, pinned: set[int]) -> None:
        """A version was committed: sweep what no reader can need."""
        ground, account = self._ground, self._account
        if not commit.empty:
            self._named_by = commit.version
            self._payloads[commit.version] = ground.sizes.fragments[self._fragment].version
        if ground.settings.retain:
            return
        before = self._sweeping.boundary
        self._sweeping = self._sweeping.observed(
            now=ground.now, head=commit.version, pinned=pinned
        )
        boundary = self._sweeping.boundary
        if boundary in (before, NOTHING_SWEPT):
            return
        account.put(ground.sizes.boundary)
        account.listed(2)
        for number in range(boundary + 1, commit.version + 1):
            account.get(ground.commit_bytes(self._fragment, number))
        doomed = [v for v in self._payloads if v <= boundary and v != self._named_by]
        mail = [base for base in self._mail if base < boundary]
        if doomed or mail:
            account.deletes += 1
        freed = sum(self._payloads.pop(version) for version in doomed)
        freed += sum(self._mail.pop(base) for base in mail)
        ground.stored.add(-freed, ground.now)
