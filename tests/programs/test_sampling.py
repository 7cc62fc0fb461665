"""Random batches: another order for each seed, and the same order after a restart."""

import torch

from gradientmail.learner.program import Positioned
from gradientmail.learner.state import pack, unpack
from gradientmail.programs.sampling import RandomBatches


def batches(seed: int) -> RandomBatches[list[int]]:
    return RandomBatches(1000, torch.Tensor.tolist, size=5, seed=seed)


def drawn(source: RandomBatches[list[int]], count: int = 4) -> list[list[int]]:
    return [next(source) for _ in range(count)]


def test_a_seed_fixes_the_order_and_another_changes_it() -> None:
    assert drawn(batches(1)) == drawn(batches(1))
    assert drawn(batches(1)) != drawn(batches(2))


def test_a_saved_position_goes_on_at_the_next_batch() -> None:
    first, second = batches(1), batches(2)
    drawn(first, 3)
    assert isinstance(first, Positioned)
    second.load_state_dict(unpack(pack(first.state_dict())))
    assert drawn(second) == drawn(first)


def test_drawing_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    drawn(batches(1))
    assert torch.equal(torch.rand(1), expected)
