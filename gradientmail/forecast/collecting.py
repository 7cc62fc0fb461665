"""One round being collected: mail that is seen, judged and counted, until ``Closing`` decides."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gradientmail.closer.intake import JUDGED_AT_ONCE
from gradientmail.forecast.ground import Ground
from gradientmail.forecast.ledger import Account, Lane
from gradientmail.forecast.local import Mail
from gradientmail.forecast.pace import Pace
from gradientmail.protocol.closing import Adopt, Close, Closing, Look, Wait
from gradientmail.protocol.judging import Round
from gradientmail.protocol.polling import CLOSER_POLLS, Looks
from gradientmail.records.keys import MailKey


@dataclass(frozen=True)
class Machine:
    """The closer's machine: its lines, its processor, its account."""

    up: Lane
    down: Lane
    compute: Lane
    account: Account


@dataclass
class Collecting:
    """The mail of one round.

    Args:
        call: The round's grace window is open.
        close: The round is to be closed with these contributions, collected for so long.
    """

    ground: Ground
    machine: Machine
    judged: Round
    closing: Closing
    looks: Looks
    round_index: int
    live: Callable[[], frozenset[str]]
    call: Callable[[int], None]
    close: Callable[["Collecting", list[Mail]], None]
    opened_at: float = 0.0
    closed: bool = False
    accepted: dict[tuple[str, int], Mail] = field(default_factory=dict)
    _heard: set[str] = field(default_factory=set)
    _unheard: set[str] = field(default_factory=set)
    _judging: set[str] = field(default_factory=set)
    _queue: deque[Mail] = field(default_factory=deque)
    _unseen: list[Mail] = field(default_factory=list)
    _seats: int = JUDGED_AT_ONCE
    _deciding: bool = False

    def __post_init__(self) -> None:
        self._pace = Pace(self.ground.rng, takes_s=self.ground.latency_s)

    @property
    def listings(self) -> int:
        """How often the mail was listed."""
        return round(self._pace.looks)

    @property
    def commit_reads(self) -> int:
        """How often it was looked whether another closer has committed the version."""
        open_s = self.ground.now - self.opened_at
        between_s = open_s / max(1.0, self._pace.looks)
        every_s = CLOSER_POLLS * self.ground.settings.poll_s + between_s / 2
        return min(self.listings, 1 + int(open_s / every_s))

    def open(self, waiting: Iterable[Mail]) -> None:
        """Look for the first time; ``waiting`` is the mail that is there."""
        self.opened_at = self.ground.now
        self._unseen = [mail for mail in waiting if self.reads(mail)]
        begins = self._pace.first(self.ground.now)
        self.ground.agenda.at(begins + self.ground.latency_s, self._look)
        self.live_changed()

    def reads(self, mail: Mail) -> bool:
        """Whether this mail may count."""
        return self.judged.reads(MailKey(mail.fragment, mail.base, mail.learner, ""))

    def arrived(self, mail: Mail) -> None:
        """Mail is in the store: the next poll sees it."""
        if not self.closed and self.reads(mail):
            self._unseen.append(mail)
            begins = self._pace.next_look(self.ground.now, self._due, self._wait_s)
            if begins is not None:
                self.ground.agenda.at(begins + self.ground.latency_s, self._look)

    def live_changed(self) -> None:
        """Others are live now: they may be those who were waited for."""
        if self.live() or self._judging or self.accepted:
            self._expect()
        self._unheard = set(self.live() | self._judging) - self._heard
        self._decide_soon()

    # -- seeing ------------------------------------------------------------------------------

    def _expect(self) -> None:
        """Somebody is there: from now on a quorum is to be expected."""
        if self.looks.opened is None:
            self.rest()
            self.looks = replace(self.looks, opened=self.ground.now)

    @property
    def _due(self) -> float:
        if self.looks.heard_at is not None:
            return self.looks.heard_at
        opened, quorum_s = self.looks.opened, self.looks.estimates.quorum_s
        return self.looks.began if opened is None else opened + (quorum_s or 0.0)

    def _wait_s(self, at: float, _chance: float) -> float:
        return self.looks.wait_s(at)

    def rest(self) -> None:
        """Count the looks up to now."""
        self._pace.catch_up(self.ground.now, self._due, self._wait_s)

    def _look(self) -> None:
        self._pace.looked(self.ground.now)
        if self.closed:
            return
        if self._unseen:
            self._expect()
            self.looks = replace(self.looks, heard_at=self.ground.now)
        for mail in self._unseen:
            self._judging.add(mail.learner)
            if mail.learner not in self._heard:
                self._unheard.add(mail.learner)
            self._queue.append(mail)
        self._unseen = []
        self._take_seats()
        self._decide_soon()

    def _take_seats(self) -> None:
        """Begin to judge: one read of the header, then the whole, then every number of it."""
        ground, machine = self.ground, self.machine
        sizes = ground.sizes.fragments[self.judged.fragment]
        while self._seats and self._queue:
            self._seats -= 1
            mail = self._queue.popleft()
            header_bytes = min(sizes.contribution, sizes.header_read)
            machine.account.get(header_bytes)
            machine.account.fetch(sizes.contribution)
            whole = header_bytes + sizes.contribution
            _, fetched = machine.down.take(whole, ground.now + ground.latency_s)
            ground.agenda.at(fetched + ground.latency_s, self._fetched, mail)

    def _fetched(self, mail: Mail) -> None:
        sizes = self.ground.sizes.fragments[self.judged.fragment]
        _, checked = self.machine.compute.take(sizes.numel, self.ground.now)
        self.ground.agenda.at(checked, self._accept, mail)

    def _accept(self, mail: Mail) -> None:
        self._seats += 1
        if self.closed:
            return
        self.accepted[mail.learner, mail.base] = mail
        self._heard.add(mail.learner)
        self._judging.discard(mail.learner)
        self._unheard.discard(mail.learner)
        self._take_seats()
        self._decide_soon()

    # -- deciding ----------------------------------------------------------------------------

    def _decide_soon(self) -> None:
        """Ask ``Closing``, if it could say anything but wait."""
        quorum = self.closing.quorum_at is None and len(self._heard) >= self.closing.quorum
        everyone = not self._unheard and bool(self._heard or self.live())
        if (quorum or everyone) and not self._deciding and not self.closed:
            self._deciding = True
            self.ground.agenda.at(self.ground.now, self._decide)

    def _decide(self) -> None:
        self._deciding = False
        if self.closed:
            return
        look = Look(
            now=self.ground.now,
            committed=False,
            accepted=self._heard,
            rejected=frozenset(),
            live=self.live() | self._judging,
        )
        self.closing, decision = self.closing.observe(look)
        match decision:
            case Close(learners):
                self._end([one for one in self.accepted.values() if one.learner in learners])
            case Wait(until=until, calling=calling):
                if calling:
                    self.call(self.round_index)
                if until is not None:
                    self.ground.agenda.at(until, self._decide)
            case Adopt():
                raise AssertionError("there is one closer at work")

    def _end(self, mails: list[Mail]) -> None:
        self.rest()
        self.closed = True
        self.close(self, mails)
