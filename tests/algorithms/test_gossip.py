"""Mixing rules: what one round makes of vectors, and that all agree in the long run."""

import pytest
import torch
from torch import Tensor

from gradientmail.algorithms.gossip import GOSSIPS, Average, Gossip, NoLoCo
from gradientmail.errors import SettingsError
from gradientmail.protocol.topology import TOPOLOGIES, mixing

COUNT = 8
NAMES = [f"learner-{number}" for number in range(COUNT)]
TARGETS = torch.arange(COUNT, dtype=torch.float64).unsqueeze(1) ** 2 / 10


def test_average_takes_the_weighted_mean_of_fast_parameters() -> None:
    fast = [torch.tensor([1.0]), torch.tensor([3.0])]
    assert Average().mix([0.75, 0.25], [], fast, None) == (torch.tensor([1.5]), None)


def test_noloco_is_its_formula() -> None:
    """m = momentum m - lr mean(slow - fast) - pull (slow - mean slow), slow += m; by hand."""
    rule = NoLoCo(lr=0.7, momentum=0.5, pull=1.0)
    slow, fast = (
        [torch.tensor([1.0]), torch.tensor([2.0])],
        [torch.tensor([0.5]), torch.tensor([2.4])],
    )
    new, move = rule.mix([0.5, 0.5], slow, fast, torch.tensor([0.2]))
    assert move is not None
    # 0.1 - 0.7 (1.5 - 1.45) - (1 - 1.5)
    torch.testing.assert_close(move, torch.tensor([0.565]))
    torch.testing.assert_close(new, torch.tensor([1.565]))


def test_noloco_with_momentum_0_and_rates_1_is_average() -> None:
    slow, fast = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    mean, _ = Average().mix([0.5, 0.5], list(slow), list(fast), None)
    new, _ = NoLoCo(lr=1.0, momentum=0.0).mix([0.5, 0.5], list(slow), list(fast), None)
    torch.testing.assert_close(new, mean)


@pytest.mark.parametrize("rule", [Average(), NoLoCo()])
def test_a_learner_alone_keeps_what_it_trained_or_steps_along_it(rule: Gossip) -> None:
    slow, fast = torch.tensor([2.0]), torch.tensor([1.0])
    new, _ = rule.mix([1.0], [slow], [fast], None)
    assert new == pytest.approx(1.0 if isinstance(rule, Average) else 1.3)


@pytest.mark.parametrize("topology", ["ring", "full", "star", "exponential", "random-pairs"])
@pytest.mark.parametrize("rule", [Average(), NoLoCo(), NoLoCo(momentum=0.3, lr=1.0)])
def test_learners_with_unlike_losses_agree_near_the_minimum_of_their_sum(
    rule: Gossip, topology: str
) -> None:
    """Each has 0.5 (x - target)^2 and a rate that falls: the minimum of the sum is the mean."""
    graph = TOPOLOGIES.make(topology, {})
    slow = torch.zeros(COUNT, 1, dtype=torch.float64)
    momentum: list[Tensor | None] = [None] * COUNT
    for turn in range(3000):
        rate = 0.5 / (1 + 0.05 * turn)
        fast = slow - rate * (slow - TARGETS)
        rows = mixing(graph, NAMES, f"run/{turn}")
        following = []
        for i, name in enumerate(NAMES):
            order = [i, *(j for j, other in enumerate(NAMES) if j != i and other in rows[name])]
            weights = [rows[name][NAMES[j]] for j in order]
            new, momentum[i] = rule.mix(
                weights, [slow[j] for j in order], [fast[j] for j in order], momentum[i]
            )
            following.append(new)
        slow = torch.stack(following)
    assert (slow - slow.mean()).abs().max() < 0.1
    assert slow.mean().item() == pytest.approx(TARGETS.mean().item(), abs=0.05)


def test_an_unknown_rule_is_refused_listing_what_there_is() -> None:
    with pytest.raises(SettingsError, match="unknown gossip 'push'"):
        GOSSIPS.make("push", {})
    with pytest.raises(SettingsError, match="pull"):
        GOSSIPS.make("noloco", {"pull": 9.0})
