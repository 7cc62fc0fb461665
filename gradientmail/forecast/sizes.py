"""How many bytes everything has: real formats and records, of which only the length counts."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gradientmail.algorithm import Algorithm
from gradientmail.codecs.layout import layout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.protocol.plans import FragmentPlan, TensorSize, plan_named
from gradientmail.records import keys
from gradientmail.records.canonical import encode
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.control import Boundary
from gradientmail.records.estimates import Estimates
from gradientmail.records.head import Head
from gradientmail.records.lease import Beat
from gradientmail.records.manifest import FragmentSpec, Manifest, PayloadRef, TensorSpec
from gradientmail.records.presence import Presence

NONCE: Final = "0" * 32
DIGEST: Final = f"xxh3_128:{NONCE}"
TYPICAL: Final = 1.2345678901234567
"""A float as records write most of them: with all its digits."""

NAME: Final = "forecast-run-00"
STEPS: Final = 12_345


@dataclass(frozen=True, kw_only=True)
class FragmentSizes:
    """One fragment, in bytes.

    Attributes:
        numel: Elements of its vector, padding included.
        contribution: What a learner posts.
        params: The published parameters.
        update: What takes one version to the next; None where none is published.
        outer: The closer's own state; 0 where it has none.
        header_read: How much of a contribution is read to judge its header.
    """

    numel: int
    contribution: int
    params: int
    update: int | None
    outer: int
    header_read: int

    @property
    def version(self) -> int:
        """All payloads of one version."""
        return self.params + self.outer + (self.update or 0)

    @property
    def step(self) -> int:
        """What a learner that holds the version before reads."""
        return self.params if self.update is None else self.update


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A run, in bytes.

    Attributes:
        commit: A commit without participants, and what each participant adds.
        applied: What each learner that was ever used adds to every later commit.
    """

    fragments: tuple[FragmentSizes, ...]
    manifest: int
    commit: int
    participant: int
    applied: int
    head: int
    presence: int
    beat: int
    boundary: int

    @property
    def numel(self) -> int:
        """Elements of all fragments, padding included."""
        return sum(fragment.numel for fragment in self.fragments)

    def commit_of(self, participants: int, applied: int) -> int:
        """Return the size of a commit of ``participants``, where ``applied`` were ever used."""
        return self.commit + participants * self.participant + applied * self.applied


def sizes_of(algorithm: Algorithm, tensors: Sequence[TensorSize]) -> Sizes:
    """Return the sizes of a run of ``tensors``.

    Raises:
        SettingsError: the tensors cannot be dealt to that many fragments.
    """
    numels = {tensor.name: tensor.numel for tensor in tensors}
    plan = plan_named(algorithm.plan)(tensors, algorithm.schedule.fragments)
    layouts = [layout([(entry.name, numels[entry.name]) for entry in one]) for one in plan]
    first = _round_record(())
    one, two = (len(encode(_round_record(range(n)))) for n in (1, 2))
    used = len(encode(_applied(first, 2))) - len(encode(_applied(first, 1)))
    return Sizes(
        fragments=tuple(
            _fragment(algorithm, of.numel, len(entries))
            for of, entries in zip(layouts, plan, strict=True)
        ),
        manifest=_manifest(algorithm, tensors, plan),
        commit=len(encode(first)),
        participant=two - one,
        applied=used,
        head=len(encode(_head(algorithm.schedule.fragments))),
        presence=len(encode(_presence(algorithm.schedule.fragments))),
        beat=len(encode(Beat(term=1, closer="closer-0", count=STEPS))),
        boundary=len(encode(Boundary(run=NAME, fragment=0, version=STEPS, nonce=NONCE))),
    )


def _fragment(algorithm: Algorithm, numel: int, tensors: int) -> FragmentSizes:
    def size(found: PayloadFormat | None) -> int | None:
        return None if found is None else found.size_bytes(None)

    record = encode(_contribution(algorithm, tensors)).decode()
    return FragmentSizes(
        numel=numel,
        contribution=algorithm.delta_format(numel).size_bytes(record),
        params=algorithm.params_format(numel).size_bytes(None),
        update=size(algorithm.update_format(numel)),
        outer=size(algorithm.outer_format(numel)) or 0,
        header_read=algorithm.delta_format(numel).max_header_bytes,
    )


# -- records as they look in the middle of a run ------------------------------------------------


def _contribution(algorithm: Algorithm, tensors: int) -> ContributionRecord:
    return ContributionRecord(
        run=NAME,
        learner="learner-0000",
        incarnation=NONCE,
        fragment=0,
        base=STEPS,
        anchor=DIGEST,
        steps=STEPS,
        tokens=STEPS**2,
        step_s=TYPICAL,
        final=False,
        precision=algorithm.delta_dtype,
        norms=(TYPICAL,) * tensors,
        digest=DIGEST,
        nonce=NONCE,
    )


def _round_record(participants: Sequence[int]) -> RoundRecord:
    ref = PayloadRef(
        key=keys.payload(0, STEPS, NONCE, "params"), size_bytes=STEPS**2, digest=DIGEST
    )
    return RoundRecord(
        run=NAME,
        fragment=0,
        version=STEPS,
        parent=DIGEST,
        params=ref,
        outer=ref,
        update=ref,
        participants=tuple(_participant(index) for index in participants),
        cosine=TYPICAL,
        norm=TYPICAL,
        estimates=Estimates(step_s=TYPICAL, quorum_s=TYPICAL, sync_s=TYPICAL),
        closer="closer-0",
        term=1,
        nonce=NONCE,
        closed_at=TYPICAL * 1e9,
    )


def _participant(index: int) -> Participant:
    learner = f"learner-{index:04d}"
    return Participant(
        learner=learner,
        incarnation=NONCE,
        nonce=NONCE,
        base=STEPS,
        steps=STEPS,
        tokens=STEPS**2,
        weight=TYPICAL * STEPS**3,
        norm=TYPICAL,
        clip=1.0,
        key=keys.mail(0, STEPS, learner, NONCE),
        digest=DIGEST,
    )


def _applied(record: RoundRecord, learners: int) -> RoundRecord:
    applied = {f"learner-{index:04d}": STEPS for index in range(learners)}
    return msgspec.structs.replace(record, applied=applied)


def _head(fragments: int) -> Head:
    return Head(run=NAME, term=1, closer="closer-0", versions=(STEPS,) * fragments)


def _presence(fragments: int) -> Presence:
    return Presence(
        run=NAME,
        learner="learner-0000",
        incarnation=NONCE,
        count=STEPS,
        versions=(STEPS,) * fragments,
        steps=STEPS,
        tokens=STEPS**2,
        step_s=TYPICAL,
        loss=TYPICAL,
        posted=STEPS,
        applied=STEPS,
        bytes_up=STEPS**3,
        bytes_down=STEPS**3,
        requests=STEPS,
        waited_s=TYPICAL,
        seen_at=TYPICAL * 1e9,
    )


def _manifest(algorithm: Algorithm, tensors: Sequence[TensorSize], plan: FragmentPlan) -> int:
    ref = PayloadRef(key=keys.payload(0, 0, NONCE, "params"), size_bytes=1, digest=DIGEST)
    specs = [
        TensorSpec(
            name=tensor.name,
            shape=_shape(tensor.numel),
            dtype="float32",
            kind="parameter",
            trainable=True,
        )
        for tensor in tensors
    ]
    manifest = Manifest(
        run=NAME,
        created_at=TYPICAL * 1e9,
        created_by="gradientmail 0.1.0",
        settings=algorithm.settings,
        tensors=tuple(specs),
        fragments=tuple(FragmentSpec(entries=one, params=ref) for one in plan),
    )
    return len(encode(manifest))


def _shape(numel: int) -> tuple[int, ...]:
    side = math.isqrt(numel)
    return (side, side) if side * side == numel else (numel,)
