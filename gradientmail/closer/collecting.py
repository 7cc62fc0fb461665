"""Collecting: looks at one round's mail until the round is to be closed."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gradientmail.closer.desk import Desk
from gradientmail.closer.intake import Accepted, Intake, Rejected, Verdict
from gradientmail.errors import StoreUnavailableError
from gradientmail.protocol.closing import Adopt, Close, Closing, Look, Wait
from gradientmail.protocol.judging import Round
from gradientmail.protocol.polling import CLOSER_POLLS, Looks
from gradientmail.records import keys
from gradientmail.tasks import first_of

ATTEMPTS = 3
"""How often an object is tried that the store does not give out, while it answers otherwise."""


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a round is closed with.

    Attributes:
        accepted: At most one contribution for each learner and base, in a fixed order.
        rejected: What was judged in this round and does not count.
        quorum_s: Seconds from the first look with a learner to the quorum; None when it was not
            met.
        since_quorum_s: Seconds from there to the decision to close.
    """

    accepted: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]
    quorum_s: float | None
    since_quorum_s: float = 0.0

    def lost(self) -> tuple[str, ...]:
        """Return what was accepted and is not in the spool any more: a cleaner was there."""
        return tuple(one.key for one in self.accepted if not one.path.exists())


@dataclass
class Collecting:
    """The mail of one round: judged as it arrives, each object once.

    No verdict is gone through again for a later one, or a round would cost its square.
    """

    desk: Desk
    intake: Intake
    judged: Round
    looks: Looks
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[Verdict | None]] = field(default_factory=dict)
    _judging: dict[str, str] = field(default_factory=dict)
    _over: list[str] = field(default_factory=list)
    _stirred: asyncio.Event = field(default_factory=asyncio.Event)
    _heard: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)
    _rejected: list[Rejected] = field(default_factory=list)
    _warned: bool = False
    _committed: bool = False
    _look_at: float = -math.inf
    _commit_look_at: float = -math.inf
    _foreign: set[str] = field(default_factory=set)
    _failures: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for verdict in self.verdicts.values():
            self._enter(verdict)

    async def run(
        self, closing: Closing, live: Callable[[], frozenset[str]], call: Callable[[], None]
    ) -> Collected | None:
        """Look until ``closing`` decides; None: someone else has closed the round.

        It may be run again after an outage: what was judged stays judged.

        Args:
            closing: The round's state machine, at its beginning.
            live: Returns the learners that are live now.
            call: Tells learners that the round's grace window is open.
        """
        try:
            while True:
                await self._look_if_due(anyone=bool(live()))
                closing, decision = closing.observe(self._seen(live()))
                match decision:
                    case Adopt():
                        return None
                    case Close(learners):
                        return self._collected(learners, closing.quorum_at)
                    case Wait():
                        if decision.calling:
                            call()
                        elif decision.until is not None and not self._warned:
                            self._warn_of_quorum(closing)
                        await self._pause(decision)
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._tasks.clear()
            self._judging.clear()
            self._over.clear()

    def judge_again(self, lost: Sequence[str]) -> None:
        """Forget the verdicts on these, and look for them at once."""
        for key in lost:
            del self.verdicts[key]
            self.desk.log.warning("%s is gone from the spool: judging it again", key)
        accepted = (one for one in self.verdicts.values() if isinstance(one, Accepted))
        self._heard = {one.record.learner for one in accepted}
        self._look_at = -math.inf

    @property
    def idle(self) -> bool:
        """Whether there is no mail that a commit might hold."""
        return not self._tasks and not self._heard

    async def _look_if_due(self, *, anyone: bool) -> None:
        """Look at the store; in between, a verdict or a deadline is reason enough to decide."""
        if self.desk.clock.now() >= self._look_at:
            await self._look()
            now = self.desk.clock.now()
            if self.looks.opened is None and (anyone or self._tasks or self.verdicts):
                self.looks = replace(self.looks, opened=now)
            self._look_at = now + self.looks.wait_s(now)
        self._take_in()

    async def _look(self) -> None:
        """List the mail, and start judging what is new."""
        fragment, mailbox = self.judged.fragment, self.desk.run.mailbox
        after = keys.mail_before(fragment, min(self.judged.anchors))
        listing = mailbox.store.list(keys.mail_of(fragment), after=after)
        entries, _ = await asyncio.gather(listing, self._look_for_commit())
        for entry in entries:
            if entry.key in self.verdicts or entry.key in self._tasks:
                continue
            parsed = keys.parse_mail(entry.key)
            if parsed is None:
                self._report_foreign(entry.key)
            elif self.judged.reads(parsed):
                judging = asyncio.create_task(self.intake.judge(self.judged, parsed, entry))
                judging.add_done_callback(partial(self._end, entry.key))
                self._tasks[entry.key], self._judging[entry.key] = judging, parsed.learner
                self.looks = replace(self.looks, heard_at=self.desk.clock.now())

    async def _look_for_commit(self) -> None:
        """See whether another closer was first; our own commit would find out as well."""
        now, poll_s = self.desk.clock.now(), self.desk.run.manifest.settings.poll_s
        if now >= self._commit_look_at:
            found = await self.desk.run.mailbox.commit(self.judged.fragment, self.judged.version)
            self._committed = found is not None
            self._commit_look_at = now + CLOSER_POLLS * poll_s

    def _seen(self, live: frozenset[str]) -> Look:
        """Return what the verdicts amount to."""
        return Look(
            now=self.desk.clock.now(),
            committed=self._committed,
            accepted=self._heard,
            rejected=self._refused - self._heard,
            live=live.union(self._judging.values()),  # who posted and left is still to be heard
        )

    def _end(self, key: str, judging: asyncio.Task[Verdict | None]) -> None:
        if self._tasks.get(key) is judging:
            self._over.append(key)
            self._stirred.set()

    def _take_in(self) -> None:
        over, self._over = self._over, []
        for key in over:
            verdict = self._verdict(key, self._judging.pop(key), self._tasks.pop(key))
            if verdict is None:
                continue
            self.verdicts[key] = verdict
            self._enter(verdict)
            if isinstance(verdict, Rejected):
                self._rejected.append(verdict)
                extra = {"fragment": self.judged.fragment, "learner": verdict.learner}
                self.desk.log.warning("rejected %s: %s", key, verdict.reason, extra=extra)

    def _enter(self, verdict: Verdict) -> None:
        """Note who was heard. A rejection answers for its own round only."""
        if isinstance(verdict, Accepted):
            self._heard.add(verdict.record.learner)
        elif verdict.key.startswith(
            keys.mail_before(self.judged.fragment, self.judged.version - 1)
        ):
            self._refused.add(verdict.learner)

    def _verdict(
        self, key: str, learner: str, task: asyncio.Task[Verdict | None]
    ) -> Verdict | None:
        """Return the verdict on one object; None: look again. One bad object holds up no round."""
        try:
            return task.result()
        except StoreUnavailableError as exc:
            self._failures[key] += 1
            if self._failures[key] < ATTEMPTS:
                self.desk.log.warning("could not judge %s, trying again: %s", key, exc)
                return None
            return Rejected(key=key, learner=learner, reason=f"cannot be read: {exc}")

    async def _pause(self, decision: Wait) -> None:
        """Wait for the next poll, the decision's deadline, or the next verdict.

        Who is live may change meanwhile, so a poll is the longest.
        """
        now, poll_s = self.desk.clock.now(), self.desk.run.manifest.settings.poll_s
        until = min(now + poll_s, self._look_at, decision.until or math.inf)
        self._stirred.clear()
        if not self._over:
            await first_of(self.desk.clock.sleep(max(0.0, until - now)), self._stirred.wait())

    def _collected(self, learners: frozenset[str], quorum_at: float | None) -> Collected:
        accepted = [
            verdict
            for verdict in self.verdicts.values()
            if isinstance(verdict, Accepted) and verdict.record.learner in learners
        ]
        now = self.desk.clock.now()
        opened = now if self.looks.opened is None else self.looks.opened
        return Collected(
            accepted=_one_each(accepted),
            rejected=tuple(self._rejected),
            quorum_s=None if quorum_at is None else max(0.0, quorum_at - opened),
            since_quorum_s=0.0 if quorum_at is None else now - quorum_at,
        )

    def _warn_of_quorum(self, closing: Closing) -> None:
        self._warned = True
        self.desk.log.warning(
            "every live learner was heard and the quorum of %d is not met: closing without it in "
            "%.0f s",
            closing.quorum,
            closing.timeout_s,
            extra={"fragment": self.judged.fragment, "version": self.judged.version},
        )

    def _report_foreign(self, key: str) -> None:
        if key not in self._foreign:
            self._foreign.add(key)
            self.desk.log.warning("ignoring a foreign object: %s", key)


def _one_each(accepted: list[Accepted]) -> tuple[Accepted, ...]:
    """Of each learner's contributions against one base (twins, restarts), the longest.

    The order is that of names, so that any closer sums in the same one.
    """
    best: dict[tuple[str, int], Accepted] = {}
    for one in sorted(accepted, key=lambda one: (one.record.steps, one.record.nonce)):
        best[one.record.learner, one.record.base] = one
    return tuple(one for _, one in sorted(best.items()))


def carried_over(verdicts: Mapping[str, Verdict], judged: Round) -> dict[str, Verdict]:
    """Return the verdicts that still stand in the round ``judged``: late, but not too late."""
    return {
        key: verdict
        for key, verdict in verdicts.items()
        if (parsed := keys.parse_mail(key)) is not None and judged.reads(parsed)
    }
