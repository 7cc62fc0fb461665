"""A learner whose model is one number, at a desk without a network."""

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gradientmail.algorithm import algorithm_of
from gradientmail.codecs.layout import layout
from gradientmail.config import RunSettings
from gradientmail.learner.desk import Desk
from gradientmail.learner.posts import Arrival, Draft, Progress
from gradientmail.learner.training import Training
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.protocol.publishing import Decision
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.manifest import (
    FragmentSpec,
    Manifest,
    PayloadRef,
    PlanEntry,
    TensorSpec,
)
from gradientmail.run import Run, Version
from gradientmail.store.base import Store
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter
from gradientmail.testing.clock import ManualClock

DIGEST = "xxh3_128:" + "0" * 32
NONCE = "1" * 32
PAYLOAD = PayloadRef(key="fragments/x", size_bytes=1, digest=DIGEST)
TOKENS = 10
"""Trained on in each step."""
SAMPLES = 2
"""Those are in so many examples."""


class Numbers(nn.Module):
    """One parameter of one number for each fragment."""

    def __init__(self, fragments: int, dtype: torch.dtype) -> None:
        super().__init__()
        for p in range(fragments):
            self.register_parameter(f"w{p}", nn.Parameter(torch.zeros(1, dtype=dtype)))


async def inline(function: Any, *arguments: Any) -> Any:
    """Run a long function where it is called."""
    return function(*arguments)


def make_desk(store: Store | None = None, *, fragments: int = 1, **settings: Any) -> Desk:
    """Return the desk of "ann", in a run of ``fragments`` numbers."""
    chosen = RunSettings(
        **{"sync_every": 4, "fragments": fragments, "poll_s": 1.0, "quorum": 1, **settings}
    )
    names = [f"w{p}" for p in range(fragments)]
    manifest = Manifest(
        run="r1",
        created_at=0.0,
        created_by="test",
        settings=chosen,
        tensors=tuple(
            TensorSpec(name=name, shape=(1,), dtype="float32", kind="parameter", trainable=True)
            for name in names
        ),
        fragments=tuple(
            FragmentSpec(entries=(PlanEntry(name),), params=PAYLOAD) for name in names
        ),
    )
    run = Run(
        mailbox=Mailbox(store or MemoryStore()),
        manifest=manifest,
        digest=DIGEST,
        algorithm=algorithm_of(chosen),
        layouts=tuple(layout([(name, 1)]) for name in names),
    )
    return Desk(
        run=run,
        name="ann",
        incarnation=NONCE,
        device=torch.device("cpu"),
        clock=ManualClock(100.0),
        rng=random.Random(0),
        offload=inline,
        meter=Meter(),
        log=get_logger("gradientmail.learner", learner="ann"),
    )


def flat(value: float) -> Tensor:
    """Return a fragment's vector: one number, and padding."""
    vector = torch.zeros(4096)
    vector[0] = value
    return vector


@dataclass
class FakeWire:
    """An exchange in the test's hand."""

    progress: Progress = field(default_factory=lambda: Progress(at=0.0, versions=()))
    calling: frozenset[int] = frozenset()
    asked: frozenset[int] | None = None
    posted: list[Draft] = field(default_factory=list)
    given_back: list[tuple[int, str]] = field(default_factory=list)
    owed: list[tuple[int, Tensor]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    started_over: list[int] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def take(self) -> tuple[list[Arrival], list[tuple[str, str]]]:
        arrivals, refusals = self.arrivals, self.refusals
        self.arrivals, self.refusals = [], []
        return arrivals, refusals

    def post(self, draft: Draft) -> None:
        self.posted.append(draft)

    def give_back(self, fragment: int, key: str) -> None:
        self.given_back.append((fragment, key))

    def owe(self, fragment: int, vector: Tensor) -> None:
        self.owed.append((fragment, vector))

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def start_over(self, fragment: int) -> None:
        self.started_over.append(fragment)


class Lone:
    """A learner in training, step by step."""

    def __init__(
        self, *, fragments: int = 1, dtype: torch.dtype = torch.float32, **settings: Any
    ) -> None:
        self.desk = make_desk(fragments=fragments, **settings)
        self.wire = FakeWire()
        self.model = Numbers(fragments, dtype)
        self.discards = 0
        self.training = Training(self.desk, self.model, self.wire, discarded=self._count_discard)

    def _count_discard(self) -> None:
        self.discards += 1

    def join(self, *values: float, version: int = 0) -> None:
        """Start from ``version`` of every fragment."""
        self.training.start(
            [
                Arrival(version=self.version(version, fragment=p), params=flat(value))
                for p, value in enumerate(values)
            ]
        )

    def step(self, *moves: float, seconds: float = 1.0) -> Decision:
        """Take one inner step, which moves each number by its entry of ``moves``."""
        with torch.no_grad():
            for parameter, move in zip(self.model.parameters(), moves, strict=True):
                parameter.add_(move)
        self.desk.clock._now_s += seconds  # type: ignore[attr-defined]
        self.training.stepped(TOKENS, None, samples=SAMPLES)
        return self.training.settle()

    def steps(self, count: int, *moves: float) -> Decision:
        """Take ``count`` of them."""
        return [self.step(*moves) for _ in range(count)][-1]

    @property
    def values(self) -> list[float]:
        return [float(parameter.detach()) for parameter in self.model.parameters()]

    def version(self, number: int, *, fragment: int = 0, **record: Any) -> Version:
        """Return a version that ann took no part in, unless ``record`` says so."""
        fields = {
            "run": "r1",
            "fragment": fragment,
            "version": max(1, number),
            "parent": DIGEST,
            "params": PAYLOAD,
            "closer": "c",
            "term": 1,
            "nonce": NONCE,
            **record,
        }
        return Version(
            fragment=fragment,
            number=number,
            digest=DIGEST,
            params=PAYLOAD,
            record=RoundRecord(**fields) if number else None,
        )

    def commit(
        self, number: int, value: float, *before: Version, fragment: int = 0, **record: Any
    ) -> None:
        """Let a version arrive, after others that were passed over."""
        version = self.version(number, fragment=fragment, **record)
        records = (*(one.record for one in before if one.record), version.record)
        history = tuple(record for record in records if record)
        arrival = Arrival(version=version, params=flat(value), history=history)
        self.wire.arrivals.append(arrival)


def used(base: int, learner: str = "ann") -> dict[str, Any]:
    """Return the fields of a record that used a contribution against ``base``."""
    participant = Participant(
        learner=learner,
        incarnation=NONCE,
        nonce=NONCE,
        base=base,
        steps=1,
        tokens=1,
        weight=1.0,
        norm=1.0,
        clip=1.0,
        key="mail/x",
        digest=DIGEST,
    )
    return {"applied": {learner: base}, "participants": (participant,)}


def rejected(draft: Draft, reason: str) -> dict[str, Any]:
    """Return the fields of a record that rejected ``draft``."""
    return {"rejected": (Rejection(key=draft.key, reason=reason),)}
