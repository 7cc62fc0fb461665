"""Sums: right, and with the same bits however the vector is cut."""

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.algorithms.reduce import BLOCK, SquareSums, per_block, root_of_squares
from gradientmail.codecs.layout import TILE, FragmentLayout, layout

FRAGMENTS = {
    "one whole tile": layout([("w", TILE)]),
    "a scalar": layout([("w", 1)]),
    "small ones share a tile": layout([("a", 1), ("b", 64), ("c", 65), ("d", 100)]),
    "across tiles": layout([("a", TILE - 1), ("b", 3 * TILE + 7), ("c", 5)]),
    "empty ones between": layout(
        [("e0", 0), ("a", 64), ("e1", 0), ("e2", 0), ("b", 9), ("e3", 0)]
    ),
    "empty ones at a tile's end": layout([("a", TILE), ("e", 0), ("b", TILE), ("f", 0)]),
    "with buffers": layout([("a", 10)], [("m", 3), ("v", 2 * TILE)]),
    "buffers only": layout([], [("m", 3), ("v", 70)]),
    "empty parameters, then buffers": layout([("e", 0)], [("m", 3)]),
}
fragments = pytest.mark.parametrize(
    "fragment", [pytest.param(fragment, id=name) for name, fragment in FRAGMENTS.items()]
)


def filled(fragment: FragmentLayout, seed: int = 0) -> torch.Tensor:
    """Return a vector of ``fragment`` with padding of zero and magnitudes of many orders."""
    generator = torch.Generator().manual_seed(seed)
    vector = torch.zeros(fragment.numel)
    for slot in fragment.slots:
        values = torch.randn(slot.numel, generator=generator)
        vector[slot.offset : slot.offset + slot.numel] = values * torch.exp(5 * values)
    return vector


def sums_of(fragment: FragmentLayout, vector: torch.Tensor, cuts: Sequence[int]) -> SquareSums:
    sums = SquareSums(fragment)
    edges = [0, *sorted(set(cuts)), fragment.numel]
    for start, stop in itertools.pairwise(edges):
        if start < stop:
            sums.add(start, vector[start:stop])
    return sums


# -- sums of squares ------------------------------------------------------------------------


@fragments
def test_norms_are_those_of_float64(fragment: FragmentLayout) -> None:
    vector = filled(fragment)
    expected = [
        vector[slot.offset : slot.offset + slot.numel].double().norm().item()
        for slot in fragment.slots
    ]
    assert sums_of(fragment, vector, []).norms() == pytest.approx(expected, rel=1e-14)


@fragments
@settings(max_examples=20)
@given(data=st.data())
def test_norms_have_the_same_bits_however_the_vector_is_cut_into_tiles(
    fragment: FragmentLayout, data: st.DataObject
) -> None:
    vector = filled(fragment)
    tiles = st.integers(0, fragment.numel // TILE).map(lambda tile: tile * TILE)
    whole = sums_of(fragment, vector, [])
    cut = sums_of(fragment, vector, data.draw(st.lists(tiles)))
    assert cut.squares() == whole.squares()


def test_norms_have_the_same_bits_in_whatever_order_the_chunks_come() -> None:
    fragment = FRAGMENTS["across tiles"]
    vector = filled(fragment)
    backwards = SquareSums(fragment)
    for start in reversed(range(0, fragment.numel, TILE)):
        backwards.add(start, vector[start : start + TILE])
    assert backwards.squares() == sums_of(fragment, vector, []).squares()


def test_the_chunk_itself_is_left_alone() -> None:
    vector = filled(FRAGMENTS["one whole tile"])
    before = vector.clone()
    SquareSums(FRAGMENTS["one whole tile"]).add(0, vector)
    assert torch.equal(vector, before)


def test_squares_beyond_float32_neither_overflow_nor_vanish() -> None:
    fragment = FRAGMENTS["a scalar"]
    for value in (3e38, 1e-45):
        vector = torch.zeros(TILE)
        vector[0] = value
        assert sums_of(fragment, vector, []).norms() == pytest.approx(
            [float(vector[0])], rel=1e-15
        )


def test_a_fragment_of_nothing_has_no_norms() -> None:
    assert SquareSums(layout([])).norms() == []
    assert SquareSums(layout([("e", 0)])).norms() == [0.0]


def test_the_whole_is_the_root_of_its_parts_squares() -> None:
    assert root_of_squares([]) == 0.0
    assert root_of_squares([None, None]) == 0.0
    assert root_of_squares([3.0, None, 4.0]) == 5.0
    assert root_of_squares([1.0] * 4 + [1e16]) == 1e16
    assert root_of_squares([0.1] * 10) == math.sqrt(math.fsum([0.1 * 0.1] * 10))


# -- a value for each tensor ----------------------------------------------------------------


@fragments
@settings(max_examples=20)
@given(data=st.data())
def test_every_element_gets_its_own_tensors_value_in_any_chunk(
    fragment: FragmentLayout, data: st.DataObject
) -> None:
    tiles = st.integers(0, fragment.numel // TILE)
    start, stop = sorted(data.draw(st.lists(tiles, min_size=2, max_size=2, unique=True)))
    values = [float(index + 1) for index in range(len(fragment.slots))]
    spread = per_block(fragment, values, start * TILE, stop * TILE)
    assert spread.shape == ((stop - start) * TILE // BLOCK, 1)
    elements = spread.expand(-1, BLOCK).reshape(-1)
    for value, slot in zip(values, fragment.slots, strict=True):
        low = max(slot.offset, start * TILE) - start * TILE
        high = min(slot.offset + slot.numel, stop * TILE) - start * TILE
        assert (elements[low : max(low, high)] == value).all()


def test_padding_takes_the_value_of_the_tensor_before_it() -> None:
    fragment = layout([("a", 1), ("b", 1)], [("m", 1)])
    blocks = per_block(fragment, [1.0, 2.0, 3.0], 0, fragment.numel).flatten().tolist()
    assert blocks == [1.0] + [2.0] * (TILE // BLOCK - 1) + [3.0] * (TILE // BLOCK)
