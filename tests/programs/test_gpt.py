"""The byte-level GPT: causal, deterministic in its seeds, and it learns."""

import math
from dataclasses import replace

import pytest
import torch

from gradientmail.learner.parameters import describe, exchanged
from gradientmail.learner.program import Program, load_program
from gradientmail.programs import gpt, source
from gradientmail.programs.gpt import GPT, Shape

CPU = torch.device("cpu")
TINY = Shape(layers=2, width=32, heads=2, context=32)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(source, "LIMIT_BYTES", 1_000_000)


def tiny(seed: int = 0, data_seed: int = 0, shape: Shape = TINY) -> Program:
    return gpt.program(
        device=CPU, seed=seed, data_seed=data_seed, shape=shape, batch=8, learning_rate=1e-2
    )


def train(program: Program, steps: int) -> None:
    for _ in range(steps):
        program.optimizer.zero_grad()
        program.loss(program.model, next(program.batches)).backward()
        program.optimizer.step()


def weights(program: Program) -> torch.Tensor:
    return torch.cat([parameter.flatten() for parameter in program.model.parameters()])


@pytest.mark.parametrize("shape", [TINY, replace(TINY, tied=True)], ids=["untied", "tied"])
def test_held_out_loss_falls_within_a_few_steps(shape: Shape) -> None:
    program = tiny(shape=shape)
    before = program.evaluate(program.model)
    assert before == pytest.approx(math.log(256), abs=0.2)
    train(program, 40)
    assert program.evaluate(program.model) < 3.7


def test_the_seed_fixes_the_parameters_and_the_data_seed_the_data() -> None:
    first, second, other = tiny(1, 1), tiny(1, 2), tiny(2, 1)
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(other))
    batch = next(first.batches)
    assert torch.equal(batch, next(other.batches))
    assert not torch.equal(batch, next(second.batches))


def test_a_resumed_training_is_byte_equal() -> None:
    undisturbed = tiny()
    train(undisturbed, 6)
    killed, resumed = tiny(), tiny(data_seed=9)
    train(killed, 3)
    resumed.model.load_state_dict(killed.model.state_dict())
    resumed.optimizer.load_state_dict(killed.optimizer.state_dict())
    resumed.batches.load_state_dict(killed.batches.state_dict())
    train(resumed, 3)
    assert torch.equal(weights(resumed), weights(undisturbed))


def test_no_byte_sees_a_later_one() -> None:
    program = tiny()
    train(program, 2)
    batch = next(program.batches)[:, :-1]
    changed = batch.clone()
    changed[:, 20:] = 0
    with torch.no_grad():
        ours, theirs = program.model(batch), program.model(changed)
    torch.testing.assert_close(ours[:, :20], theirs[:, :20])
    assert not torch.allclose(ours[:, 20:], theirs[:, 20:])


def test_batches_are_windows_one_longer_than_the_context() -> None:
    program = tiny()
    batch = next(program.batches)
    assert batch.shape == (8, 33)
    assert batch.dtype == torch.int64
    assert program.tokens(batch) == 8 * 32


def test_the_default_has_a_few_million_parameters_in_blocks_by_number() -> None:
    model = GPT(Shape())
    assert 2e6 < sum(parameter.numel() for parameter in model.parameters()) < 4e6
    names = [spec.name for spec in exchanged(describe(model, buffers="averaged"))]
    assert {name.split(".")[1] for name in names if name.startswith("blocks.")} == set("012345")
    assert "cos" not in names


def test_a_tied_head_is_one_tensor() -> None:
    specs = {spec.name: spec for spec in describe(GPT(Shape(tied=True)), buffers="local")}
    assert specs["head.weight"].alias == "embed.weight"


def test_it_is_found_by_name() -> None:
    program = load_program("gradientmail.programs.gpt:program", device=CPU, seed=0, data_seed=0)
    assert isinstance(program.model, GPT)


def test_a_sample_follows_from_its_generator_and_may_outgrow_the_context() -> None:
    model = tiny().model
    texts = [
        gpt.sample(model, "def ", 40, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]
