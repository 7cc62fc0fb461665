"""Two unequal learners of a real model, weighed by tokens: the given weights after each round.

H = 1, P = 1. The loss is the squared error summed over a learner's rows; its inner step is
SGD(.125) on the mean over its own rows, so a learner with twice the rows counts twice.
"""

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import vector_to_parameters

from gradientmail.algorithm import algorithm_of
from gradientmail.algorithms.aggregator import PARAMS, Aggregator, Contribution, FragmentState
from gradientmail.algorithms.merge import WeightedMean
from gradientmail.algorithms.outer import OuterOptimizer
from gradientmail.algorithms.presets import preset
from gradientmail.algorithms.weights import Tokens, Work
from gradientmail.codecs.layout import FragmentLayout, layout
from gradientmail.config import RunSettings, resolve
from tests.rounds.small import DILOCO, PLAIN, posted

MODEL = layout([("weight", 2), ("bias", 1)])
LEARNERS = [  # rows of x, and their y
    ([[1.0, 2.0], [-1.0, 1.0]], [1.0, 0.0]),
    ([[2.0, -1.0]], [0.5]),
]

Round = tuple[float, float, float]


def packed(model: nn.Linear) -> Tensor:
    vector = torch.zeros(MODEL.numel)
    for slot, parameter in zip(MODEL.slots, model.parameters(), strict=True):
        vector[slot.offset : slot.offset + slot.numel] = parameter.detach().flatten()
    return vector


def unpacked(fragment: FragmentLayout, vector: Tensor) -> Tensor:
    return torch.cat([vector[s.offset : s.offset + s.numel] for s in fragment.slots])


def trained(anchor: Tensor, rows: list[list[float]], targets: list[float]) -> Contribution:
    """Take one inner step from ``anchor`` with a real model and optimizer."""
    model = nn.Linear(2, 1)
    vector_to_parameters(unpacked(MODEL, anchor), model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    error = model(torch.tensor(rows)).squeeze(1) - torch.tensor(targets)
    (error.square().sum() / len(rows)).backward()
    optimizer.step()
    return posted(MODEL, anchor - packed(model), tokens=len(rows), steps=1)


@pytest.mark.parametrize(
    ("outer", "rounds"),
    [
        (
            PLAIN,
            [
                (0.354166667, 0.0, 0.270833333),
                (0.298611111, 0.109375, 0.269097222),
                (0.280237269, 0.159722222, 0.258825231),
            ],
        ),
        (
            DILOCO,
            [
                (0.306041667, 0.0825, 0.277708333),
                (0.189088194, 0.307998437, 0.277306076),
                (0.168651317, 0.392195519, 0.246588175),
            ],
        ),
    ],
)
def test_each_round_ends_at_the_given_weights(outer: OuterOptimizer, rounds: list[Round]) -> None:
    rule = Aggregator(merge=WeightedMean(), weights=Tokens(), outer=outer)
    model = nn.Linear(2, 1)
    vector_to_parameters(torch.tensor([0.5, -0.25, 0.25]), model.parameters())
    state = FragmentState(layout=MODEL, version=0, sections={PARAMS: packed(model)})
    for expected in rounds:
        anchor = state.sections[PARAMS]
        contributions = [trained(anchor, rows, targets) for rows, targets in LEARNERS]
        result = rule.close_round(state, contributions)
        assert result.outcome.weights == (2.0, 1.0)
        state = result.state
        found = unpacked(MODEL, state.sections[PARAMS]).tolist()
        assert found == pytest.approx(expected, abs=1e-6)


def test_all_reduce_is_that_rule() -> None:
    rule = algorithm_of(resolve(RunSettings, ("preset", preset("all-reduce")))).aggregator
    assert (rule.merge, rule.weights, rule.outer) == (WeightedMean(), Tokens(), PLAIN)


EXACT = [  # worked out in fractions by hand-written derivatives, without torch
    (Fraction(17, 48), Fraction(0), Fraction(13, 48)),
    (Fraction(43, 144), Fraction(7, 64), Fraction(155, 576)),
    (Fraction(1937, 6912), Fraction(23, 144), Fraction(1789, 6912)),
]


def test_in_float64_each_round_is_exact_to_twelve_digits() -> None:
    """The merging rule and the outer step are those of the closer, on float64 vectors."""
    theta = torch.tensor([0.5, -0.25, 0.25], dtype=torch.float64)
    for expected in EXACT:
        deltas = []
        for rows, targets in LEARNERS:
            model = nn.Linear(2, 1, dtype=torch.float64)
            vector_to_parameters(theta.clone(), model.parameters())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
            error = model(torch.tensor(rows, dtype=torch.float64)).squeeze(1)
            error = error - torch.tensor(targets, dtype=torch.float64)
            (error.square().sum() / len(rows)).backward()
            optimizer.step()
            deltas.append(theta - torch.cat([p.detach().flatten() for p in model.parameters()]))
        weights = [Tokens().weigh(Work(tokens=len(rows), steps=1)) for rows, _ in LEARNERS]
        norms = [[float(delta.norm())] for delta in deltas]
        shares = WeightedMean().coefficients(["all"], weights, norms, lambda _: [])
        merged = deltas[0] * shares[0][0] + deltas[1] * shares[1][0]
        theta, _ = PLAIN.update(theta, merged, {})
        assert theta.tolist() == pytest.approx([float(value) for value in expected], abs=1e-12)
