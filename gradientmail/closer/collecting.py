"""Collecting: looks at one round's mail until the round is to be closed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gradientmail.closer.desk import Desk
from gradientmail.closer.intake import Accepted, Intake, Rejected, Verdict
from gradientmail.errors import StoreUnavailableError
from gradientmail.protocol.closing import Adopt, Close, Closing, Look, Wait
from gradientmail.protocol.judging import Round
from gradientmail.records import keys

ATTEMPTS = 3
"""How often an object is tried that the store does not give out, while it answers otherwise."""


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
    """The mail of one round: judged as it arrives, each object once."""

    desk: Desk
    intake: Intake
    judged: Round
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[Verdict | None]] = field(default_factory=dict)
    _rejected: list[Rejected] = field(default_factory=list)
    _warned: bool = False
    _foreign: set[str] = field(default_factory=set)
    _failures: Counter[str] = field(default_factory=Counter)

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
        began = self.desk.clock.now()
        try:
            while True:
                closing, decision = closing.observe(await self._look(live))
                match decision:
                    case Adopt():
                        return None
                    case Close(learners):
                        since = closing.quorum_at
                        return self._collected(learners, None if since is None else since - began)
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

    @property
    def idle(self) -> bool:
        """Whether there is no mail that a commit might hold."""
        accepted = any(isinstance(verdict, Accepted) for verdict in self.verdicts.values())
        return not self._tasks and not accepted

    async def _look(self, live: Callable[[], frozenset[str]]) -> Look:
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
        return self._seen(live(), committed=committed)

    def _seen(self, live: frozenset[str], *, committed: bool) -> Look:
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
            live=live | self._being_judged(),
        )

    def _being_judged(self) -> set[str]:
        """Return whose mail is being judged: one that posted and left is still to be heard."""
        parsed = (keys.parse_mail(key) for key in self._tasks)
        return {key.learner for key in parsed if key is not None}

    def _take_in(self) -> None:
        for key in [key for key, task in self._tasks.items() if task.done()]:
            verdict = self._verdict(key, self._tasks.pop(key))
            if verdict is None:
                continue
            self.verdicts[key] = verdict
            if isinstance(verdict, Rejected):
                self._rejected.append(verdict)
                extra = {"fragment": self.judged.fragment, "learner": verdict.learner}
                self.desk.log.warning("rejected %s: %s", key, verdict.reason, extra=extra)

    def _verdict(self, key: str, task: asyncio.Task[Verdict | None]) -> Verdict | None:
        """Return the verdict on one object; None: look again. One bad object holds up no round."""
        try:
            return task.result()
        except StoreUnavailableError as exc:
            self._failures[key] += 1
            parsed = keys.parse_mail(key)
            if parsed is None or self._failures[key] < ATTEMPTS:
                self.desk.log.warning("could not judge %s, trying again: %s", key, exc)
                return None
            return Rejected(key=key, learner=parsed.learner, reason=f"cannot be read: {exc}")

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
