"""Fragment plans: nothing lost, nothing twice, sizes even, the same on every machine."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradientmail.errors import SettingsError
from gradientmail.protocol.plans import (
    PLANS,
    FragmentPlan,
    TensorSize,
    plan_by_bytes,
    plan_named,
    plan_strided,
)


def names(plan: FragmentPlan) -> list[list[str]]:
    return [[entry.name for entry in entries] for entries in plan]


def tensors_of(sizes: list[int]) -> list[TensorSize]:
    return [TensorSize(f"t{index}", numel) for index, numel in enumerate(sizes)]


def gpt(blocks: int) -> list[TensorSize]:
    inner = [f"blocks.{b}.{part}" for b in range(blocks) for part in ("attn.weight", "mlp.weight")]
    return [TensorSize(name, 64) for name in ("tok.weight", "pos.weight", *inner, "norm.weight")]


# -- by bytes -------------------------------------------------------------------------------


def test_bytes_cuts_in_model_order_into_even_sizes() -> None:
    sizes = tensors_of([40, 10, 10, 10, 10, 40])
    assert names(plan_by_bytes(sizes, 3)) == [["t0"], ["t1", "t2", "t3", "t4"], ["t5"]]


def test_entries_are_whole_tensors() -> None:
    (entries,) = plan_by_bytes(tensors_of([5]), 1)
    assert (entries[0].start_row, entries[0].end_row) == (0, None)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.data())
def test_no_other_cut_is_more_even(sizes: list[int], data: st.DataObject) -> None:
    filled = sum(size > 0 for size in sizes)
    if not filled:
        return
    parts = data.draw(st.integers(1, filled))
    plan = plan_by_bytes(tensors_of(sizes), parts)
    numel = {tensor.name: tensor.numel for tensor in tensors_of(sizes)}
    found = sum(sum(numel[name] for name in fragment) ** 2 for fragment in names(plan))
    cuts = ((0, *inner, len(sizes)) for inner in combinations(range(1, len(sizes)), parts - 1))
    assert found == min(sum(sum(sizes[a:b]) ** 2 for a, b in pairwise(cut)) for cut in cuts)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200), st.integers(1, 40))
def test_every_tensor_is_in_one_fragment_and_no_fragment_is_empty(
    sizes: list[int], fragments: int
) -> None:
    tensors = tensors_of(sizes)
    plan = plan_by_bytes(tensors, min(fragments, len(sizes)))
    assert all(plan)
    assert [name for fragment in names(plan) for name in fragment] == [t.name for t in tensors]


def test_no_fragment_holds_only_tensors_without_elements() -> None:
    assert names(plan_by_bytes(tensors_of([0, 7, 0, 1, 0]), 2)) == [
        ["t0", "t1"],
        ["t2", "t3", "t4"],
    ]


def test_more_fragments_than_tensors_names_the_numbers() -> None:
    with pytest.raises(SettingsError, match=r"fragments=3, but only 2 .* at most 2"):
        plan_by_bytes(tensors_of([4, 0, 4]), 3)


# -- strided --------------------------------------------------------------------------------


def test_strided_deals_blocks_in_turn_and_the_ends_to_the_ends() -> None:
    assert names(plan_strided(gpt(blocks=5), 2)) == [
        ["tok.weight", "pos.weight"]
        + [f"blocks.{b}.{part}" for b in (0, 2, 4) for part in ("attn.weight", "mlp.weight")],
        [f"blocks.{b}.{part}" for b in (1, 3) for part in ("attn.weight", "mlp.weight")]
        + ["norm.weight"],
    ]


def test_a_block_is_the_first_integer_of_the_name() -> None:
    tensors = [TensorSize(f"h.{b}.experts.{e}.w", 4) for b in range(2) for e in range(2)]
    assert names(plan_strided(tensors, 2)) == [
        ["h.0.experts.0.w", "h.0.experts.1.w"],
        ["h.1.experts.0.w", "h.1.experts.1.w"],
    ]


def test_block_numbers_may_have_holes_and_any_order() -> None:
    tensors = [TensorSize(name, 4) for name in ("10.w", "2.w", "6.w")]
    assert names(plan_strided(tensors, 3)) == [["2.w"], ["6.w"], ["10.w"]]


def test_fewer_blocks_than_fragments_names_the_way_out() -> None:
    with pytest.raises(SettingsError, match=r'show 2 blocks: .* at most 2 or plan = "bytes"'):
        plan_strided(gpt(blocks=2), 3)


@given(st.integers(1, 30), st.integers(1, 30))
def test_strided_loses_nothing(blocks: int, fragments: int) -> None:
    tensors = gpt(blocks)
    plan = plan_strided(tensors, min(blocks, fragments))
    assert all(plan)
    assert sorted(n for f in names(plan) for n in f) == sorted(t.name for t in tensors)


# -- by name --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_found_by_name(name: str) -> None:
    assert plan_named(name) is PLANS[name]


def test_an_unknown_plan_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"unknown plan 'round'; known: bytes, strided"):
        plan_named("round")
