"""What a learner's training side and its exchange hand to each other."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from gradientmail.algorithm import DELTA
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.codecs.layout import FragmentLayout, chunks
from gradientmail.codecs.noise import Noise
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import BufferTarget, PayloadWriter
from gradientmail.records.commit import RoundRecord
from gradientmail.run import Version


@dataclass(frozen=True, slots=True)
class Trained:
    """What was trained, counted.

    Attributes:
        steps: Inner steps.
        tokens: Tokens in them.
        samples: Examples in them; 0 where the loop counts none.

    >>> Trained(3, 30) + Trained(1, 10) - Trained(2, 20)
    Trained(steps=2, tokens=20, samples=0)
    """

    steps: int = 0
    tokens: int = 0
    samples: int = 0

    def __add__(self, more: "Trained") -> "Trained":
        """Return both together."""
        return Trained(
            self.steps + more.steps, self.tokens + more.tokens, self.samples + more.samples
        )

    def __sub__(self, less: "Trained") -> "Trained":
        """Return what is beyond ``less``."""
        return Trained(
            self.steps - less.steps, self.tokens - less.tokens, self.samples - less.samples
        )


UNTRAINED: Final = Trained()


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A pseudo-gradient to be posted.

    Attributes:
        key: Where.
        nonce: Its name in the commit that uses it; part of the key.
        base: The version it was made against.
        delta: ``anchor - theta``, flat float32 of the layout's length, finite, ours to overwrite.
        trained: What is behind it.
        step_s: Mean seconds of one of its steps.
        final: Whether the learner leaves after it.
    """

    key: str
    nonce: str
    base: Version
    delta: Tensor
    trained: Trained
    step_s: float
    final: bool

    @property
    def fragment(self) -> int:
        """The fragment it is of."""
        return self.base.fragment


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A newer version of a fragment, ready to be aligned with.

    Attributes:
        params: The published parameters: flat float32, on the model's device; read only.
        history: Records since the version before, as far as they may name a contribution of ours.
    """

    version: Version
    params: Tensor
    history: tuple[RoundRecord, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Counters of the training side; see ``records.presence``.

    Attributes:
        at: Its clock at the last step.
        next_post_at: When its next round will be due, if nobody calls it before.
        holding: It waits for a commit, which is no silence.
        divergence: See ``records.presence``.
    """

    at: float
    versions: tuple[int, ...]
    next_post_at: float = 0.0
    steps: int = 0
    tokens: int = 0
    samples: int = 0
    step_s: float = 0.0
    loss: float | None = None
    posted: int = 0
    applied: int = 0
    dropped: int = 0
    rejected: str | None = None
    waited_s: float = 0.0
    holding: bool = False
    divergence: float | None = None


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A draft as it travels.

    Attributes:
        data: The payload's data bytes, without the header.
        norms: L2 norm of each tensor as a reader decodes it; None where it is absent.
        rest: What rounding lost: flat float32.
    """

    data: bytearray
    norms: tuple[float | None, ...]
    rest: Tensor


def encode_delta(
    payload_format: PayloadFormat,
    layout: FragmentLayout,
    delta: Tensor,
    noise: Noise | None = None,
) -> Encoded:
    """Encode ``delta`` by chunks, on its device; ``delta`` itself becomes the rest.

    ``noise``: round stochastically by it.

    A tensor of zeros did not change and is absent. One of which a sparse format sends nothing
    this time is there, with norm 0.

    Raises:
        NonFiniteError, PayloadError: it cannot be sent; ``delta`` is then partly overwritten.
    """
    target = BufferTarget()
    writer = PayloadWriter(payload_format, target, header=b"", noise=noise)
    sums = SquareSums(layout)
    for start, stop in chunks(0, layout.numel):
        sent = writer.write(DELTA, start, delta[start:stop])
        sums.add(start, sent)
        delta[start:stop] -= sent
    norms = tuple(
        norm if norm or bool(delta[slot.offset : slot.offset + slot.numel].any()) else None
        for slot, norm in zip(layout.slots, sums.norms(), strict=True)
    )
    return Encoded(data=target.data, norms=norms, rest=delta)
