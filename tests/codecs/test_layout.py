import torch

from gradientmail.codecs import ALIGN, CHUNK, TILE, Precision, block_slots, chunks, layout


def test_slots_start_at_multiples_of_64_and_buffers_at_a_tile():
    fragment = layout([("a", 1), ("b", 64), ("c", 65)], [("m", 3), ("v", 3)])
    offsets = {slot.name: slot.offset for slot in fragment.slots}
    assert offsets == {"a": 0, "b": 64, "c": 128, "m": TILE, "v": TILE + 64}
    assert fragment.parameters_end == TILE
    assert fragment.numel == 2 * TILE
    assert fragment.parameter_slots == 3


def test_a_full_tile_is_not_padded_further():
    fragment = layout([("a", TILE)], [("b", TILE)])
    assert (fragment.parameters_end, fragment.numel) == (TILE, 2 * TILE)
    assert layout([("a", TILE + 1)]).numel == 2 * TILE


def test_without_buffers_the_parameters_end_at_the_end():
    fragment = layout([("a", 10)])
    assert fragment.parameters_end == fragment.numel == TILE


def test_without_parameters_the_buffers_start_at_once():
    fragment = layout([], [("m", 10)])
    assert (fragment.parameters_end, fragment.slots[0].offset, fragment.numel) == (0, 0, TILE)


def test_empty_tensors_keep_a_slot_and_cost_nothing():
    fragment = layout([("none", 0), ("scalar", 1), ("none too", 0)], [("also none", 0)])
    assert [slot.numel for slot in fragment.slots] == [0, 1, 0, 0]
    assert fragment.numel == fragment.parameters_end == TILE
    assert layout([("none", 0)]).numel == 0
    assert layout([]).numel == layout([]).parameters_end == 0


def test_every_block_knows_its_slot_and_padding_counts_to_the_slot_before():
    fragment = layout([("a", 65), ("none", 0), ("b", 1)], [("m", 1)])
    slots = block_slots(fragment)
    assert slots.dtype == torch.int32
    assert slots.tolist() == [0, 0] + [2] * (TILE // ALIGN - 2) + [3] * (TILE // ALIGN)


def test_a_fragment_of_nothing_has_no_blocks():
    assert block_slots(layout([])).tolist() == []
    assert block_slots(layout([("none", 0)])).tolist() == []


def test_chunks_cover_a_range_once_and_in_order():
    assert list(chunks(TILE, 2 * CHUNK + 2 * TILE)) == [
        (TILE, CHUNK + TILE),
        (CHUNK + TILE, 2 * CHUNK + TILE),
        (2 * CHUNK + TILE, 2 * CHUNK + 2 * TILE),
    ]
    assert list(chunks(TILE, TILE)) == []


def test_no_quantization_block_can_mix_two_tensors():
    blocks = [p.block for p in Precision if p.block]
    assert all(ALIGN % block == 0 and TILE % block == 0 for block in blocks)
    assert CHUNK % TILE == 0
