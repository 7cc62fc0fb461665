"""Forging: contributions that are true but for one thing, to see what a closer makes of them."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import torch

from gradientmail.algorithm import DELTA
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.codecs.streaming import decoded
from gradientmail.errors import PayloadError
from gradientmail.learner.posts import encode_delta
from gradientmail.records import canonical, keys
from gradientmail.records.contribution import ContributionRecord
from gradientmail.run import Run, Version

T = TypeVar("T")


class Outcome(Enum):
    """What must become of an object."""

    REJECTED = "rejected"
    IGNORED = "ignored"
    ACCEPTED = "accepted"


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One object of the corpus.

    Attributes:
        name: What is wrong with it.
        body: Makes its bytes.
        reason: What the recorded reason must match, where it is rejected.
    """

    name: str
    key: str
    body: Callable[[], bytes]
    outcome: Outcome = Outcome.REJECTED
    reason: str = ""


@dataclass
class Forger:
    """Makes contributions that are true but for one thing.

    Attributes:
        count: Learners so far: each contribution is of the next one.
    """

    run: Run
    base: Version
    count: int = 0
    data: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self.layout = self.run.layouts[self.base.fragment]
        self.format = self.run.algorithms[self.base.fragment].delta_format(self.layout.numel)
        delta = torch.zeros(self.layout.numel)
        for slot in self.layout.slots:
            delta[slot.offset : slot.offset + slot.numel] = 0.5
        encoded = encode_delta(self.format, self.layout, delta)
        self.data, self._norms = encoded.data, encoded.norms

    def claim(self, data: bytes | bytearray) -> ContributionRecord:
        """Return a true record of ``data``, of the next learner."""
        self.count += 1
        return ContributionRecord(
            run=self.run.name,
            learner=f"eve-{self.count:03d}",
            incarnation="e" * 32,
            fragment=self.base.fragment,
            base=self.base.number,
            anchor=self.base.digest,
            steps=4,
            tokens=40,
            step_s=0.5,
            final=False,
            precision=self.run.algorithms[self.base.fragment].delta_dtype,
            norms=self._norms_of(data),
            digest=canonical.digest_of(memoryview(data)),
            nonce=f"{self.count:032x}",
        )

    def _norms_of(self, data: bytes | bytearray) -> tuple[float | None, ...]:
        try:
            delta = decoded(self.format.header(None) + bytes(data), self.format, section=DELTA)
        except PayloadError:
            return self._norms
        sums = SquareSums(self.layout)
        sums.add(0, delta)
        return tuple(norm or None for norm in sums.norms())

    def letter(
        self,
        name: str,
        reason: str = "",
        *,
        data: bytes | bytearray | None = None,
        record: Callable[[str], str] | None = None,
        header: Callable[[str], str | bytes] | None = None,
        whole: Callable[[bytes], bytes] | None = None,
    ) -> Specimen:
        """Return a contribution with one change, to be accepted where there is no ``reason``.

        Args:
            name: What is changed.
            reason: What the recorded reason must match.
            data: Its data; the record tells the truth of it as far as there is one.
            record: Makes the text of its record from the true one.
            header: Makes the text of its header.
            whole: Makes the object.
        """
        data = self.data if data is None else data
        claim = self.claim(data)
        text = _changed(record, canonical.encode(claim).decode())
        plain = self.format.header("").rstrip(b" ")[8:].decode()
        titled = plain.replace('"gradientmail":""', f'"gradientmail":{_quoted(text)}', 1)
        raw = titled if header is None else header(titled)
        body = _changed(whole, padded(raw) + bytes(data))
        return Specimen(
            name=name,
            key=keys.mail(claim.fragment, claim.base, claim.learner, claim.nonce),
            body=lambda: body,
            outcome=Outcome.REJECTED if reason else Outcome.ACCEPTED,
            reason=reason,
        )


def swap(old: str, new: str) -> Callable[[str], str]:
    """Return a change of the first ``old``, which must be there, to ``new``."""

    def swapped(text: str) -> str:
        if old not in text:
            raise ValueError(f"nothing to spoil: {old!r} is not in {text[:200]!r}")
        return text.replace(old, new, 1)

    return swapped


def instead(value: T) -> Callable[[object], T]:
    """Return a change of anything to ``value``."""
    return lambda _: value


def with_field(name: str, value: object) -> Callable[[str], str]:
    """Return a change of one field of a record; the form stays canonical."""

    def changed(text: str) -> str:
        tree = {**json.loads(text), name: value}
        return json.dumps(tree, separators=(",", ":"), sort_keys=True)

    return changed


def padded(header: str | bytes) -> bytes:
    """Return a header's text with its length before it and spaces up to the page behind it."""
    raw = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
    length = -(-(8 + len(raw)) // 4096) * 4096 - 8
    return length.to_bytes(8, "little") + raw.ljust(length)


def _changed(change: Callable[[T], T] | None, value: T) -> T:
    return value if change is None else change(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
