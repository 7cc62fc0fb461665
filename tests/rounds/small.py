"""Small fragments, written as each tensor's values, and the outer rules that tests close with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import Aggregator, Contribution, Counters, FragmentState
from gradientmail.algorithms.merge import RadialDirectionalMean, WeightedMean
from gradientmail.algorithms.outer import Nesterov, Sgd
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.algorithms.weights import Tokens
from gradientmail.codecs.blocks import decode_chunk, encode_chunk
from gradientmail.codecs.layout import FragmentLayout, chunks
from gradientmail.codecs.precision import Precision

MOMENTUM = "momentum"
PLAIN = Sgd(lr=1.0)
DILOCO = Nesterov(lr=0.7, momentum=0.9)
MEAN = Aggregator(merge=WeightedMean(), weights=Tokens(), outer=PLAIN)
RADIAL = replace(MEAN, merge=RadialDirectionalMean())

Values = Mapping[str, Sequence[float] | None]
"""Each tensor's values, or None where it is absent."""


def flat(fragment: FragmentLayout, values: Values) -> Tensor:
    vector = torch.zeros(fragment.numel)
    for slot in fragment.slots:
        own = values[slot.name]
        if own is not None:
            vector[slot.offset : slot.offset + slot.numel] = torch.tensor(own)
    return vector


def tensors(fragment: FragmentLayout, vector: Tensor) -> dict[str, list[float]]:
    return {s.name: vector[s.offset : s.offset + s.numel].tolist() for s in fragment.slots}


def state_of(fragment: FragmentLayout, **sections: Values) -> FragmentState:
    vectors = {name: flat(fragment, values) for name, values in sections.items()}
    return FragmentState(layout=fragment, version=3, sections=vectors)


def contribution(
    fragment: FragmentLayout, values: Values, *, tokens: int = 1, steps: int = 1
) -> Contribution:
    """Return a contribution with the norms that its data has."""
    absent = [slot.name for slot in fragment.slots if values[slot.name] is None]
    return posted(fragment, flat(fragment, values), tokens=tokens, steps=steps, absent=absent)


def posted(
    fragment: FragmentLayout,
    delta: Tensor,
    *,
    tokens: int = 1,
    steps: int = 1,
    absent: Sequence[str] = (),
) -> Contribution:
    """Return ``delta`` as a contribution of as many examples as tokens."""
    sums = SquareSums(fragment)
    for start, stop in chunks(0, fragment.numel):
        sums.add(start, delta[start:stop])
    norms = [
        None if slot.name in absent else norm
        for slot, norm in zip(fragment.slots, sums.norms(), strict=True)
    ]
    counters = Counters(steps=steps, tokens=tokens, samples=tokens, norms=norms)
    return Contribution(counters=counters, delta=delta)


@dataclass
class Recorded:
    """A sink that stores each section in a precision, as files of payloads do."""

    fragment: FragmentLayout
    precisions: Mapping[str, Precision]
    vectors: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vectors = {name: torch.zeros(self.fragment.numel) for name in self.precisions}

    @property
    def sections(self) -> frozenset[str]:
        return frozenset(self.precisions)

    def write(self, section: str, start: int, chunk: Tensor) -> Tensor:
        precision = self.precisions[section]
        stored = decode_chunk(encode_chunk(chunk, precision), precision)
        self.vectors[section][start : start + chunk.numel()] = stored
        return stored

    def state(self, version: int) -> FragmentState:
        return FragmentState(layout=self.fragment, version=version, sections=self.vectors)
