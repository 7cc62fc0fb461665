"""One learner, plain averaging, no quantization: a run is plain training.

It is so bit for bit where ``anchor - theta`` is exact in float32, as it is for a parameter that
moves by less than half of itself in a round (see tests/algorithms/test_outer.py). The model here
starts from weights of which that holds; one that starts from small weights comes within rounding.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from gradientmail.algorithm import algorithm_of
from gradientmail.algorithms.aggregator import PARAMS, FragmentState
from gradientmail.algorithms.presets import preset
from gradientmail.codecs.layout import layout
from gradientmail.config import RunSettings, resolve
from tests.rounds.small import posted

ROUNDS, SYNC_EVERY = 12, 8


class Regression:
    """A small network, its optimizer, and data that is the same for every instance."""

    def __init__(self, weights: Tensor) -> None:
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.weights = weights
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self._generator = torch.Generator().manual_seed(7)

    def step(self) -> None:
        x = torch.randn(16, 4, generator=self._generator)
        loss = (self.model(x).squeeze(1) - x.sum(1)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    @property
    def weights(self) -> Tensor:
        return parameters_to_vector(self.model.parameters()).detach().clone()

    @weights.setter
    def weights(self, vector: Tensor) -> None:
        vector_to_parameters(vector.clone(), self.model.parameters())  # it takes views


def both_ways(weights: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Return the weights after plain training and after a run, and whether it could be exact."""
    algorithm = algorithm_of(resolve(RunSettings, ("preset", preset("local-sgd"))))
    fragment = layout([("all", weights.numel())])
    padding = (0, fragment.numel - weights.numel())
    alone, member = Regression(weights), Regression(weights)
    state = FragmentState(layout=fragment, version=0, sections={PARAMS: pad(weights, padding)})
    exact = True
    for _ in range(ROUNDS):
        anchor = state.sections[PARAMS]
        for _ in range(SYNC_EVERY):
            alone.step()
            member.step()
        local = pad(member.weights, padding)
        moved = local / anchor
        exact &= bool(((moved >= 0.5) & (moved <= 2.0) | (anchor == 0)).all())
        delta = posted(fragment, anchor - local, tokens=16 * SYNC_EVERY, steps=SYNC_EVERY)
        state = algorithm.aggregator.close_round(state, [delta]).state
        aligned = algorithm.alignment.align(anchor, state.sections[PARAMS], local, local)
        member.weights = aligned[: weights.numel()]
    return alone.weights, member.weights, exact


def random_weights(scale: float) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    count = 4 * 8 + 8 + 8 + 1
    signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    return (torch.rand(count, generator=generator) + 1.0) * signs * scale


def test_a_run_of_one_learner_is_plain_training_bit_for_bit() -> None:
    alone, member, exact = both_ways(random_weights(scale=1.0))
    assert exact, "the case this test is about"
    assert torch.equal(alone, member)


def test_from_small_weights_it_is_plain_training_within_rounding() -> None:
    alone, member, exact = both_ways(random_weights(scale=1e-3))
    assert not exact, "the case this test is about"
    assert member.tolist() == pytest.approx(alone.tolist(), abs=1e-6)
