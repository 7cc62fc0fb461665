"""Collecting: looks at one round's mail until the round is to be closed."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gradientmail.closer.desk import Desk
from gradientmail.closer.intake import Accepted, Intake, Rejected, Verdict
from gradientmail.protocol.closing import Adopt, Close, Closing, Look, Wait
from gradientmail.protocol.judging import Round
from gradientmail.records import keys


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What a round is closed with.

    Attributes:
        accepted: At most one contribution for each learner and base, in a fixed order.
        rejected: What was judged in this round and does not count.
        quorum_s: Seconds from the first look to the quorum; None when it was not met.
    """

    accepted: tuple[Accepted, ...]
    rejected: tuple[Rejected, ...]
    quorum_s: float | None


@dataclass
class Collecting:
    """The mail of one round: judged as it arrives, each object once.

    Attributes:
        live: Returns the learners that are live now.
        call: Tells learners that the round's grace window is open.
    """

    desk: Desk
    live: Callable[[], frozenset[str]]
    call: Callable[[], None]
    intake: Intake
    judged: Round
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[Verdict | None]] = field(default_factory=dict)
    _rejected: list[Rejected] = field(default_factory=list)
    _foreign: set[str] = field(default_factory=set)

    async def run(self, closing: Closing) -> Collected | None:
        """Look until ``closing`` decides; None: someone else has closed the round."""
        began = self.desk.clock.now()
        try:
            while True:
                closing, decision = closing.observe(await self._look())
                match decision:
                    case Adopt():
                        return None
                    case Close(learners):
                        since = closing.quorum_at
                        return self._collected(learners, None if since is None else since - began)
                    case Wait():
                        if decision.calling:
                            self.call()
                        await self._pause(decision)
        finally:
            for task in self._tasks.values():
                task.cancel()

    async def _look(self) -> Look:
        """List the mail, start judging what is new, and take in what has been judged."""
        fragment, mailbox = self.judged.fragment, self.desk.run.mailbox
        committed = await mailbox.commit(fragment, self.judged.version) is not None
        after = keys.mail_before(fragment, min(self.judged.anchors))
        for entry in await mailbox.store.list(keys.mail_of(fragment), after=after):
            if entry.key in self.verdicts or entry.key in self._tasks:
                continue
            parsed = keys.parse_mail(entry.key)
            if parsed is None:
                self._report_foreign(entry.key)
            elif self.judged.reads(parsed):
                judging = self.intake.judge(self.judged, parsed, entry)
                self._tasks[entry.key] = asyncio.create_task(judging)
        self._take_in()
        return self._seen(committed=committed)

    def _seen(self, *, committed: bool) -> Look:
        """Return what the verdicts amount to. A rejection answers for its own round only."""
        base = keys.mail_before(self.judged.fragment, self.judged.version - 1)
        accepted = {v.record.learner for v in self.verdicts.values() if isinstance(v, Accepted)}
        rejected = {
            v.learner
            for v in self.verdicts.values()
            if isinstance(v, Rejected) and v.key.startswith(base)
        }
        return Look(
            now=self.desk.clock.now(),
            committed=committed,
            accepted=accepted,
            rejected=rejected - accepted,
            live=self.live() | self._being_judged(),
        )

    def _being_judged(self) -> set[str]:
        """Return whose mail is being judged: one that posted and left is still to be heard."""
        parsed = (keys.parse_mail(key) for key in self._tasks)
        return {key.learner for key in parsed if key is not None}

    def _take_in(self) -> None:
        for key in [key for key, task in self._tasks.items() if task.done()]:
            verdict = self._tasks.pop(key).result()
            if verdict is None:
                continue
            self.verdicts[key] = verdict
            if isinstance(verdict, Rejected):
                self._rejected.append(verdict)
                extra = {"fragment": self.judged.fragment, "learner": verdict.learner}
                self.desk.log.warning("rejected %s: %s", key, verdict.reason, extra=extra)

    async def _pause(self, decision: Wait) -> None:
        """Wait for the next poll, the decision's deadline, or the next verdict."""
        now, poll_s = self.desk.clock.now(), self.desk.run.manifest.settings.poll_s
        wait_s = poll_s if decision.until is None else min(poll_s, max(0.0, decision.until - now))
        timer = asyncio.create_task(self.desk.clock.sleep(wait_s))
        try:
            await asyncio.wait([timer, *self._tasks.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()

    def _collected(self, learners: frozenset[str], quorum_s: float | None) -> Collected:
        accepted = [
            verdict
            for verdict in self.verdicts.values()
            if isinstance(verdict, Accepted) and verdict.record.learner in learners
        ]
        return Collected(
            accepted=_one_each(accepted),
            rejected=tuple(self._rejected),
            quorum_s=quorum_s,
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
