"""The digits classifier: it learns in seconds, and its BatchNorm statistics are in play."""

import sys

import pytest
import torch

from gradientmail.errors import SettingsError
from gradientmail.learner.parameters import describe, exchanged
from gradientmail.programs import digits

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_it_names_nine_held_out_digits_in_ten_after_a_short_training() -> None:
    program = digits.program(device=CPU, seed=0, data_seed=0)
    before = program.evaluate(program.model)
    for _ in range(120):
        program.optimizer.zero_grad()
        program.loss(program.model, next(program.batches)).backward()
        program.optimizer.step()
    _, held_out = digits.load_digits(CPU)
    assert digits.accuracy(program.model, held_out) > 0.9
    assert program.evaluate(program.model) < before
    assert program.model.training


def test_training_and_held_out_digits_are_apart_and_complete() -> None:
    train, held_out = digits.load_digits(CPU)
    assert len(train.labels) + len(held_out.labels) == 1797
    assert len(held_out.labels) == 360
    assert set(held_out.labels.tolist()) == set(range(10))
    assert 0.0 <= train.images.min() < train.images.max() == 1.0


def test_evaluating_leaves_the_running_statistics_alone() -> None:
    program = digits.program(device=CPU, seed=0, data_seed=0)
    before = {name: value.clone() for name, value in program.model.named_buffers()}
    program.evaluate(program.model)
    for name, value in program.model.named_buffers():
        assert torch.equal(value, before[name])


def test_its_batch_norm_statistics_are_exchanged_where_buffers_are_averaged() -> None:
    specs = exchanged(describe(digits.network(), buffers="averaged"))
    assert sum(spec.kind == "buffer" for spec in specs) == 4


def test_a_batch_counts_its_images() -> None:
    program = digits.program(device=CPU, seed=0, data_seed=0, batch=7)
    assert program.tokens(next(program.batches)) == 7


def test_without_scikit_learn_it_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(SettingsError, match=r"pip install 'gradientmail\[demo\]'"):
        digits.program(device=CPU, seed=0, data_seed=0)
