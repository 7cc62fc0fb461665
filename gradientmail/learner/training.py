"""The training side of a learner: what happens to the model at a step boundary.

It has no thread, no loop and no socket: it takes arrivals from an exchange and gives it drafts,
and ``protocol`` decides. The session runs it in the user's thread.
"""

import math
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from gradientmail.clock import fresh_nonce
from gradientmail.learner.aligning import Meeting, align
from gradientmail.learner.desk import Desk
from gradientmail.learner.fragments import LocalFragment, OnItsWay, Tally
from gradientmail.learner.local import LocalTensors
from gradientmail.learner.parameters import FragmentTensors, Vectors
from gradientmail.learner.posts import UNTRAINED, Arrival, Draft, Progress, Trained
from gradientmail.learner.wire import Wire
from gradientmail.protocol.pace import Pace
from gradientmail.protocol.publishing import Decision, Hold, Publish, Publishing, Train
from gradientmail.protocol.recovery import Echo, Fate, Posted, echo, fate, reason_rejected
from gradientmail.records import keys
from gradientmail.records.commit import RoundRecord

STEP_DECAY = 0.1

NOT_FINITE = "parameters are NaN or infinite"


class Training:
    """A learner's model, aligned with the run and counted; ``start`` it, or restore it.

    Args:
        discarded: Called when the model, or some of it, had to go back.

    Attributes:
        local: What the model has besides what is exchanged.
        tally: Of contributions.
    """

    def __init__(
        self, desk: Desk, model: nn.Module, wire: Wire, *, discarded: Callable[[], None]
    ) -> None:
        self._desk, self._run, self._wire, self._discarded = desk, desk.run, wire, discarded
        self._vectors = Vectors(max(one.numel for one in desk.run.layouts), desk.device)
        self.tensors = [FragmentTensors(model, one, self._vectors) for one in desk.run.layouts]
        exchanged = {slot.name for one in desk.run.layouts for slot in one.slots}
        self.local = LocalTensors(model, () if desk.run.algorithm.alone else exchanged)
        self.fragments: list[LocalFragment] = []
        self.publishing = Publishing(
            schedule=desk.run.algorithm.schedule,
            versions=(0,) * len(desk.run.layouts),
            anchored_at=(0,) * len(desk.run.layouts),
        )
        self.trained = UNTRAINED
        self.tally = Tally()
        self._rejected: str | None = None
        self._step_s = 0.0
        self.pace = Pace()
        self._stepped_at: float | None = None
        self.waited_s = 0.0

    # -- where training starts ---------------------------------------------------------------

    def start(self, arrivals: Sequence[Arrival]) -> None:
        """Take over committed parameters: this is where a joining learner's training begins."""
        self.fragments = []
        for arrival in sorted(arrivals, key=lambda arrival: arrival.version.fragment):
            tensors = self.tensors[arrival.version.fragment]
            tensors.scatter(arrival.params)
            self.fragments.append(
                LocalFragment(
                    tensors=tensors,
                    version=arrival.version,
                    committed=arrival.params,
                    anchor=tensors.rounded(arrival.params),
                )
            )
            self.publishing = self.publishing.aligned(
                arrival.version.fragment, arrival.version.number, 0
            )
        self.report()

    # -- at a step boundary ------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Inner steps taken."""
        return self.trained.steps

    def stepped(self, tokens: int, loss: float | None, *, samples: int = 0) -> None:
        """Count one inner step."""
        now = self._desk.clock.now()
        if self._stepped_at is not None:
            took_s = now - self._stepped_at
            decay = STEP_DECAY if self._step_s else 1.0
            self._step_s += decay * (took_s - self._step_s)
        self._stepped_at = now
        self.trained += Trained(1, tokens, samples)
        self.report(loss)

    def settle(self) -> Decision:
        """Align with what arrived, publish what is due; return ``Hold`` or ``Train``."""
        if self._run.algorithm.alone:
            return Train()
        arrivals, refusals = self._wire.take()
        for key, reason in refusals:
            self._take_back(key)
            self._discard(reason)
        for arrival in arrivals:
            self._align(arrival)
        while True:
            decision = self.publishing.decide(self.step, self._wire.calling, self._wire.asked)
            if not isinstance(decision, Publish):
                break
            if not self._publish(decision.round_index, final=False):
                decision = Train()
                break
        self.report(holding=isinstance(decision, Hold))
        return decision

    def flush(self) -> None:
        """Publish what every fragment has left, as this learner's last word on it."""
        if self._run.algorithm.alone:
            return
        for p, fragment in enumerate(self.fragments):
            open_here = any(one.base == fragment.version.number for one in fragment.posted)
            if not open_here and self.step > self.publishing.anchored_at[p]:
                self._publish(self._round_of(p, fragment.version.number), final=True)

    def report(self, loss: float | None = None, *, holding: bool = False) -> None:
        """Tell the exchange how far we are."""
        before, now = self._wire.progress, self._desk.clock.now()
        self._wire.progress = Progress(
            at=now,
            next_post_at=now + self.publishing.steps_to_due(self.step) * self._step_s,
            versions=tuple(fragment.version.number for fragment in self.fragments),
            steps=self.step,
            tokens=self.trained.tokens,
            samples=self.trained.samples,
            step_s=self._step_s,
            loss=before.loss if loss is None or not math.isfinite(loss) else loss,
            posted=self.tally.posted,
            applied=self.tally.applied,
            dropped=self.tally.dropped,
            rejected=self._rejected,
            waited_s=self.waited_s,
            holding=holding,
        )

    def waited(self, seconds: float) -> None:
        """Leave a wait for a commit out of the step time."""
        self.waited_s += seconds
        if self._stepped_at is not None:
            self._stepped_at += seconds

    # -- publishing --------------------------------------------------------------------------

    def _publish(self, round_index: int, *, final: bool) -> bool:
        """Post what was trained since the anchor; False when it cannot be posted."""
        p = self._run.algorithm.schedule.fragment_of(round_index)
        fragment = self.fragments[p]
        local = fragment.tensors.gather()
        delta = fragment.anchor - local
        if not math.isfinite(float(delta.sum())):
            self._vectors.give(local)
            self._discard(NOT_FINITE)
            return False
        self._heal_local()
        self._post(p, delta, self.trained - fragment.anchored, final=final)
        fragment.snapshot, fragment.snapshot_at = local, self.trained
        self.publishing = self.publishing.published(round_index, self.step)
        self.tally.posted += 1
        return True

    def post_again(self, p: int) -> None:
        """Post the same again that an earlier self posted last of fragment ``p``."""
        fragment = self.fragments[p]
        snapshot, _ = self._snapshot(fragment)
        self._post(p, fragment.anchor - snapshot, fragment.posted.pop().trained, final=False)

    def _post(self, p: int, delta: Tensor, trained: Trained, *, final: bool) -> None:
        fragment = self.fragments[p]
        base, nonce = fragment.version, fresh_nonce(self._desk.rng)
        key = keys.mail(p, base.number, self._desk.name, nonce)
        self._wire.post(
            Draft(
                key=key,
                nonce=nonce,
                base=base,
                delta=delta,
                trained=trained,
                step_s=self._step_s,
                final=final,
            )
        )
        fragment.posted.append(OnItsWay(key=key, base=base.number, trained=trained))

    def _take_back(self, key: str) -> None:
        """Forget a draft that could not be sent: it was never posted, and its round is open."""
        for p, fragment in enumerate(self.fragments):
            for one in [one for one in fragment.posted if one.key == key]:
                fragment.posted.remove(one)
                self._vectors.give(fragment.snapshot)
                fragment.snapshot = None
                self.tally.posted -= 1
                self.publishing = self.publishing.withdrawn(self._round_of(p, one.base))

    def _discard(self, reason: str) -> None:
        """Go back to the anchors: nothing that was trained since can be used."""
        self._desk.log.error(
            "%s after step %d: the steps since the last commits are discarded and the model is "
            "back at them; lower the learning rate or clip gradients if this repeats",
            reason,
            self.step,
        )
        self._rejected = reason
        self._heal_local()
        self._discarded()
        self.publishing = self.publishing.reanchored(self.step)
        for fragment in self.fragments:
            fragment.tensors.scatter(fragment.committed)
            if fragment.snapshot is not None:
                self._vectors.give(fragment.snapshot)
                fragment.snapshot = fragment.anchor
            fragment.anchored = fragment.snapshot_at = self.trained

    def heal(self) -> None:
        """Leave nothing NaN or infinite that no commit can give back, as before it is saved.

        What is exchanged goes back with it where it is no better, or it would poison it again.
        """
        if not self.local.poisoned():
            return
        exchanged = () if self._run.algorithm.alone else self.tensors
        if all(one.is_finite() for one in exchanged):
            self._heal_local()
        else:
            self._discard(NOT_FINITE)

    def _heal_local(self) -> None:
        if self.local.go_back(self.step, self._desk.log):
            self._discarded()

    # -- aligning ----------------------------------------------------------------------------

    def _align(self, arrival: Arrival) -> None:
        """Put a newer version into the model, by the run's rule."""
        p = arrival.version.fragment
        fragment, newest = self.fragments[p], arrival.version.record
        if newest is None or arrival.version.number <= fragment.version.number:
            return
        self._keep_pace(arrival.history)
        self._heed_another_self(fragment, newest)
        if self._wire.asked is not None and fragment.snapshot is None:
            self.publishing = self.publishing.sat_out(self.step)
        snapshot, since = self._snapshot(fragment)
        dropped = self._resolve(fragment, arrival.history)
        rule, committed = self._run.algorithms[p].alignment, arrival.params
        anchor = fragment.tensors.rounded(committed)
        kept = self.trained - since if rule.keeps else UNTRAINED
        local, end = fragment.tensors.gather(), self._run.layouts[p].parameters_end
        meeting = Meeting(start=fragment.start, committed=committed, snapshot=snapshot, end=end)
        if (owed := align(rule, meeting, local, keep_buffers=kept.steps > 0)) is not None:
            self._owe(fragment, owed)
        fragment.tensors.scatter(local)
        self._vectors.give(local, snapshot)
        fragment.version, fragment.committed, fragment.anchor = arrival.version, committed, anchor
        fragment.snapshot, fragment.restored = None, False
        fragment.anchored = self.trained - kept - dropped
        self.publishing = self.publishing.aligned(
            p, arrival.version.number, fragment.anchored.steps
        )
        extra = {"fragment": p, "version": arrival.version.number}
        self._desk.log.info("aligned at step %d", self.step, extra=extra)

    def _owe(self, fragment: LocalFragment, owed: Tensor) -> None:
        """Owe ``owed`` in all: the residual takes what it does not hold of that yet.

        Nothing where parameters became NaN: the next publishing finds that and goes back, and a
        residual would keep it for good.
        """
        if not math.isfinite(float(owed.sum())):
            return
        held = None if fragment.snapshot is not None else fragment.owed
        self._wire.owe(fragment.version.fragment, owed if held is None else owed - held)
        fragment.owed = owed

    def _keep_pace(self, history: Sequence[RoundRecord]) -> None:
        """Learn how fast the others are."""
        self.pace = self.pace.heard(history)
        if self._run.algorithm.settings.local_steps == "dynamic":
            self.publishing = self.publishing.paced(self._step_s, self.pace.fastest_step_s)

    def _heed_another_self(self, fragment: LocalFragment, newest: RoundRecord) -> None:
        """Count nothing twice that was posted under our name after the state we come from.

        What is posted again counts once, and the residual moves as it did then.
        """
        p, here = fragment.version.fragment, fragment.version.number
        found = echo(
            self._desk.name,
            here,
            newest,
            restored=fragment.restored,
            max_staleness=self._run.manifest.settings.max_staleness,
        )
        trained = self.step > self.publishing.anchored_at[p]
        if found is Echo.REPEAT and fragment.snapshot is None and trained:
            self._publish(self._round_of(p, here), final=False)
        elif found is Echo.FORGET:
            fragment.snapshot = fragment.tensors.gather()
            fragment.snapshot_at = self.trained
            for one in fragment.posted:
                self._wire.forget(one.key)
            fragment.posted = []
            self._wire.start_over(p)
            self.publishing = self.publishing.published(self._round_of(p, here), self.step)

    def _snapshot(self, fragment: LocalFragment) -> tuple[Tensor, Trained]:
        """Return what no contribution holds starts from, and the counters then."""
        if fragment.snapshot is not None:
            return fragment.snapshot, fragment.snapshot_at
        return fragment.start, fragment.anchored

    def _round_of(self, p: int, base: int) -> int:
        """Return the round that a contribution to fragment ``p`` against ``base`` is for."""
        return self._run.algorithm.schedule.round_of(p, base + 1)

    def _resolve(self, fragment: LocalFragment, history: Sequence[RoundRecord]) -> Trained:
        """Learn what became of our contributions; return what to carry on."""
        pending: list[OnItsWay] = []
        dropped = UNTRAINED
        for one in fragment.posted:
            match self._fate(fragment.version.fragment, one, history):
                case Fate.PENDING:
                    pending.append(one)
                case Fate.DROPPED:
                    self.tally.dropped += 1
                    self._wire.give_back(fragment.version.fragment, one.key)
                    dropped += one.trained
                case Fate.APPLIED:
                    self.tally.applied += 1
                    self._wire.forget(one.key)
                case Fate.REJECTED:
                    self._wire.forget(one.key)
        fragment.posted = pending
        return dropped

    def _fate(self, p: int, one: OnItsWay, history: Sequence[RoundRecord]) -> Fate:
        posted = Posted(key=one.key, base=one.base)
        staleness = self._run.manifest.settings.max_staleness
        found = fate(self._desk.name, posted, history, max_staleness=staleness)
        if found is Fate.REJECTED:
            reasons = (reason_rejected(one.key, record) for record in history)
            self._rejected = next(filter(None, reasons))
            extra = {"fragment": p, "version": one.base}
            self._desk.log.error("our contribution was rejected: %s", self._rejected, extra=extra)
        return found
