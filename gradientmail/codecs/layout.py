"""Where each tensor of a fragment lies in its flat vector.

    | slot 0 | pad to 64 | slot 1 | ... pad to TILE | first buffer | ... pad to TILE |
    0                            parameters_end                               numel

Every slot starts at a multiple of ``ALIGN``, so no quantization block mixes two tensors, and
parameters and buffers are each whole tiles, so either range can be coded by itself. Padding is
zero and is sent as zero.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TILE = 4096
"""Elements that share one scale base; every range that is coded is whole tiles."""

ALIGN = 64
"""The largest quantization block: a slot starts at a multiple of it."""

CHUNK = 262_144
"""Elements worked on at a time: one mebibyte of float32, so that a chunk stays in cache."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One tensor's place: elements ``[offset, offset + numel)``, in its own C order."""

    name: str
    offset: int
    numel: int


@dataclass(frozen=True, slots=True)
class FragmentLayout:
    """The slots of a fragment, parameters first, then float buffers; see the module's picture."""

    slots: tuple[Slot, ...]
    parameter_slots: int
    numel: int

    @property
    def parameters_end(self) -> int:
        """Where the buffers start: a multiple of ``TILE``."""
        if self.parameter_slots < len(self.slots):
            return self.slots[self.parameter_slots].offset
        return self.numel


def layout(
    parameters: Sequence[tuple[str, int]], buffers: Sequence[tuple[str, int]] = ()
) -> FragmentLayout:
    """Lay out tensors, given as (name, number of elements), in the order given.

    An empty tensor keeps a slot of no elements; a fragment of nothing has ``numel`` 0.

    >>> fragment = layout([("weight", 100), ("bias", 10)], [("running_mean", 10)])
    >>> [(slot.name, slot.offset) for slot in fragment.slots], fragment.numel
    ([('weight', 0), ('bias', 128), ('running_mean', 4096)], 8192)
    """
    first, parameters_end = _place(parameters, 0)
    second, numel = _place(buffers, parameters_end)
    return FragmentLayout((*first, *second), len(first), numel)


def _place(tensors: Sequence[tuple[str, int]], start: int) -> tuple[list[Slot], int]:
    slots: list[Slot] = []
    end = start
    for name, numel in tensors:
        slots.append(Slot(name, _up(end, ALIGN), numel))
        end = slots[-1].offset + numel
    return slots, _up(end, TILE)


def _up(position: int, multiple: int) -> int:
    return -(-position // multiple) * multiple


def chunks(start: int, stop: int, length: int = CHUNK) -> Iterator[tuple[int, int]]:
    """Cut ``[start, stop)`` into ranges of ``length`` elements; the last may be shorter."""
    for low in range(start, stop, length):
        yield low, min(low + length, stop)
