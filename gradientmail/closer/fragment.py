"""The rounds of one fragment: collect, aggregate, upload, commit; or adopt another's commit."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from gradientmail.algorithms.aggregator import PARAMS, UPDATE, Outcome
from gradientmail.clock import fresh_nonce
from gradientmail.closer.aggregation import OUTER
from gradientmail.closer.collecting import Collected, Collecting, carried_over
from gradientmail.closer.desk import Desk
from gradientmail.closer.intake import Accepted, Intake, Rejected, Verdict
from gradientmail.closer.making import Making
from gradientmail.errors import PayloadError, RecordError, StoreUnavailableError, TooFewError
from gradientmail.protocol.closing import Closing
from gradientmail.protocol.judging import Round
from gradientmail.protocol.pace import typical_step_s
from gradientmail.protocol.polling import Looks
from gradientmail.records import keys
from gradientmail.records.canonical import digest_of, encode
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.head import Standing, Voucher, digest_beside
from gradientmail.records.manifest import PayloadRef
from gradientmail.run import Run, Version, as_version
from gradientmail.store.base import Created

Beside = Callable[[], tuple[Standing, ...] | None]

MAX_REJECTIONS = 100
"""Named in one record; a flood beyond it is only logged."""


class FragmentCloser:
    """Closes the rounds of ``present.fragment``, one after another.

    Args:
        beside: Returns where all other fragments stand; None where that is not certain.

    Attributes:
        voucher: What our commit of the round closed last proves; None where it was another's.
    """

    def __init__(self, desk: Desk, present: Version, beside: Beside = lambda: None) -> None:
        self.present = present
        self.voucher: Voucher | None = None
        self._beside = beside
        self._desk = desk
        self._layout = desk.run.layouts[present.fragment]
        self._algorithm = desk.run.algorithms[present.fragment]
        self._making = Making(desk, present.fragment)
        self._anchors = {present.number: present.digest}
        self._verdicts: Mapping[str, Verdict] = {}
        self._collecting: Collecting | None = None
        self._closing = False
        self._confirmed = False
        self._intake = Intake(
            store=desk.run.mailbox.store,
            spool=desk.spool,
            layout=self._layout,
            payload_format=self._algorithm.delta_format(self._layout.numel),
            offload=desk.offload,
        )

    @property
    def round_index(self) -> int:
        """The round that is open."""
        schedule = self._desk.run.algorithm.schedule
        return schedule.round_of(self.present.fragment, self.present.number + 1)

    async def close_next(
        self, live: Callable[[], frozenset[str]], call: Callable[[int], None]
    ) -> Version:
        """Bring the fragment to its next version, by our commit or another closer's.

        Args:
            live: Returns the learners that are live now.
            call: Takes a round whose grace window is open, to tell learners.
        """
        settings, self.voucher = self._desk.run.manifest.settings, None
        collecting = self._collecting = self._collecting or await self._open()
        closing = Closing(
            quorum=settings.quorum,
            grace_s=settings.grace_s,
            timeout_s=self.present.estimates.timeout(settings.poll_s),
        )
        collected = await collecting.run(closing, live, lambda: call(self.round_index))
        self._closing = True
        try:
            if not await self._stands():
                self._collecting, self._verdicts = None, {}
                return self.present
            committed = None if collected is None else await self._close_unless_late(collected)
            following = committed or await self._adopt()
        except StoreUnavailableError:
            if collected and (lost := collected.lost()):
                collecting.judge_again(lost)
            raise
        finally:
            self._closing = False
        self._collecting = None
        self._advance(following, collecting.verdicts)
        await self._tidy()
        return following

    @property
    def standing(self) -> Standing | None:
        """Where the fragment stands; None while that was read only once."""
        return self.present.standing if self._confirmed else None

    @property
    def idle(self) -> bool:
        """Whether there is nothing that its next version might hold."""
        return not self._closing and (self._collecting is None or self._collecting.idle)

    # -- collecting ------------------------------------------------------------------------

    async def _open(self) -> Collecting:
        judged = await self._judged()
        return Collecting(
            desk=self._desk,
            intake=self._intake,
            judged=judged,
            looks=Looks(
                poll_s=self._desk.run.manifest.settings.poll_s,
                estimates=self.present.estimates,
                began=self._desk.clock.now(),
            ),
            verdicts=carried_over(self._verdicts, judged),
        )

    async def _judged(self) -> Round:
        run, present = self._desk.run, self.present
        oldest = max(0, present.number - run.manifest.settings.max_staleness)
        for number in range(oldest, present.number):
            if number not in self._anchors:
                version = await run.version(present.fragment, number)
                self._anchors[number] = _committed(version, present.fragment, number).digest
        return Round(
            run=run.name,
            fragment=present.fragment,
            version=present.number + 1,
            anchors={n: digest for n, digest in self._anchors.items() if n >= oldest},
            precision=self._algorithm.delta_dtype,
            tensors=len(self._layout.slots),
            weighs_samples=self._algorithm.weighs_samples,
            applied=present.applied,
        )

    # -- closing ---------------------------------------------------------------------------

    async def _close_unless_late(self, collected: Collected) -> Version | None:
        """Close; None: we were paused for so long that what we work on has been swept."""
        try:
            return await self._close(collected)
        except RecordError:
            following = self.present.number + 1
            if await self._desk.run.version(self.present.fragment, following) is None:
                raise
            return None

    async def _close(self, collected: Collected) -> Version | None:
        """Commit; None: another closer was first."""
        began, nonce = self._desk.clock.now(), fresh_nonce(self._desk.rng)
        record = self._empty_record(nonce)
        try:
            if collected.accepted:
                outcome, refs = await self._making.make(self.present, collected.accepted)
                record = _filled(record, collected.accepted, outcome, refs)
        except TooFewError as exc:  # they count in a later round
            collected = dataclasses.replace(collected, accepted=())
            record = replace(record, missing=str(exc))
        except PayloadError as exc:
            collected = _without_accepted(collected, f"it would give a version of which {exc}")
        record = replace(
            record,
            rejected=tuple(
                Rejection(key=one.key, reason=one.reason[:2000])
                for one in collected.rejected[:MAX_REJECTIONS]
            ),
            estimates=self.present.estimates.observed(
                step_s=typical_step_s(
                    [one.record.step_s for one in collected.accepted],
                    known=self.present.estimates.step_s,
                ),
                quorum_s=collected.quorum_s,
                sync_s=collected.since_quorum_s + self._desk.clock.now() - began,
            ),
        )
        if (beside := self._beside()) is not None:
            record = replace(record, beside=digest_beside(beside))
        if await self._desk.run.mailbox.create_commit(record) is Created.EXISTS:
            return None
        if beside is not None:
            self.voucher = Voucher(record.fragment, record.version, beside)
        self._log_commit(record)
        return as_version((record, digest_of(encode(record))))

    def _empty_record(self, nonce: str) -> RoundRecord:
        present = self.present
        return RoundRecord(
            run=self._desk.run.name,
            fragment=present.fragment,
            version=present.number + 1,
            parent=present.digest,
            params=present.params,
            outer=present.outer,
            outer_steps=present.outer_steps,
            empty=True,
            applied=present.applied,
            closer=self._desk.name,
            term=self._desk.term,
            nonce=nonce,
            closed_at=self._desk.clock.wall(),
        )

    def _log_commit(self, record: RoundRecord) -> None:
        names = sorted({participant.learner for participant in record.participants})
        self._desk.log.info(
            "closed round %d with %s",
            self.round_index,
            ", ".join(names) or "nothing",
            extra={"fragment": record.fragment, "version": record.version},
        )

    # -- going on --------------------------------------------------------------------------

    async def _stands(self) -> bool:
        """Whether the version that a takeover began with was read undamaged; else read it anew."""
        if self._confirmed:
            return True
        read = self.present
        self.present = await confirmed(self._desk.run, read)
        self._anchors = {read.number: self.present.digest}
        self._confirmed = True
        return self.present.digest == read.digest

    async def _adopt(self) -> Version:
        """Return the newest version another closer committed."""
        fragment, number = self.present.fragment, self.present.number + 1
        newest = await self._desk.run.newest(fragment, number)
        if newest.number < number:
            raise StoreUnavailableError(f"{keys.commit(fragment, number)} is not visible yet")
        newest = await confirmed(self._desk.run, newest)
        extra = {"fragment": fragment, "version": newest.number}
        self._desk.log.info("adopted another closer's commit", extra=extra)
        parent = newest.record.parent if newest.record and newest.number == number else None
        if parent not in (None, self.present.digest):
            raise RecordError(
                keys.commit(fragment, number), "its parent is another version than the one before"
            )
        return newest

    def _advance(self, following: Version, verdicts: Mapping[str, Verdict]) -> None:
        """Go on from ``following``; keep the verdicts that its next round may need."""
        self.present = following
        self._making.advance()
        self._anchors[following.number] = following.digest
        self._anchors = {
            number: digest
            for number, digest in self._anchors.items()
            if number >= following.number - self._desk.run.manifest.settings.max_staleness
        }
        self._verdicts = {
            key: verdict
            for key, verdict in {**verdicts, **_rejections(following.record)}.items()
            if (parsed := keys.parse_mail(key)) and parsed.base in self._anchors
        }

    async def _tidy(self) -> None:
        """Keep the files that the next round may need; freeing large ones takes a while."""
        present = self.present
        payloads = [ref.key for ref in (present.params, present.outer) if ref]
        own = keys.mail_of(present.fragment), keys.payloads_of(present.fragment)
        keep_only = partial(self._desk.spool.keep_only, [*payloads, *self._verdicts], under=own)
        await self._desk.offload(keep_only)


async def confirmed(run: Run, version: Version) -> Version:
    """Return ``version`` once two reads of its record agree.

    The next commit names its digest for good, and a record cannot name its own: a read that was
    damaged on its way, and is a record still, would break the chain.

    Raises:
        StoreUnavailableError: it is not visible now.
    """
    while version.number:
        again = await run.version(version.fragment, version.number)
        if again is None:
            key = keys.commit(version.fragment, version.number)
            raise StoreUnavailableError(f"{key} is not visible yet")
        if again.digest == version.digest:
            break
        version = again
    return version


def _filled(
    record: RoundRecord,
    accepted: Sequence[Accepted],
    outcome: Outcome,
    refs: Mapping[str, PayloadRef],
) -> RoundRecord:
    """Return ``record`` with what the aggregation of ``accepted`` gave."""
    applied = dict(record.applied)
    for one in accepted:
        applied[one.record.learner] = max(applied.get(one.record.learner, 0), one.record.base)
    return replace(
        record,
        empty=False,
        params=refs[PARAMS],
        outer=refs.get(OUTER),
        update=refs.get(UPDATE),
        participants=tuple(
            _participant(one, outcome, index) for index, one in enumerate(accepted)
        ),
        cosine=outcome.cosine,
        norm=outcome.norm,
        outer_steps=record.outer_steps + 1,
        outer_scale=outcome.scale,
        applied=applied,
    )


def _participant(one: Accepted, outcome: Outcome, index: int) -> Participant:
    return Participant(
        learner=one.record.learner,
        incarnation=one.record.incarnation,
        nonce=one.record.nonce,
        base=one.record.base,
        steps=one.record.steps,
        tokens=one.record.tokens,
        samples=one.record.samples,
        weight=outcome.weights[index],
        norm=outcome.norms[index],
        clip=outcome.clips[index],
        key=one.key,
        digest=one.digest,
        step_s=one.record.step_s,
        divergence=outcome.sights[index].divergence,
        cosine=outcome.sights[index].cosine,
        suppressed=outcome.suppressed[index],
    )


def _without_accepted(collected: Collected, reason: str) -> Collected:
    """Return a round in which nothing counts, because all of it together cannot be used."""
    rejected = [
        Rejected(key=one.key, learner=one.record.learner, reason=reason)
        for one in collected.accepted
    ]
    return dataclasses.replace(collected, accepted=(), rejected=(*collected.rejected, *rejected))


def _rejections(record: RoundRecord | None) -> dict[str, Verdict]:
    """Return what a commit rejected: judged once, by whichever closer."""
    named = record.rejected if record else ()
    return {
        one.key: Rejected(key=one.key, learner=parsed.learner, reason=one.reason)
        for one in named
        if (parsed := keys.parse_mail(one.key))
    }


def _committed(version: Version | None, fragment: int, number: int) -> Version:
    """Versions are contiguous and never deleted: one that is missing is damage."""
    if version is None:
        raise RecordError(keys.commit(fragment, number), "a committed version is missing")
    return version
