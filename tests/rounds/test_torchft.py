"""torchft's six DiLoCo trajectories, through our schedule, publishing, closing and alignment.

Two identical learners and instant commits. torchft takes a fragment's gradient ``overlap_steps``
before the step at which its round is due and aligned; our learner publishes when due and aligns
afterwards, so here its training begins ``overlap_steps`` ahead of the schedule.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gradientmail.algorithms.aggregator import PARAMS, Aggregator, FragmentState
from gradientmail.algorithms.alignment import Alignment, Blend, Overwrite
from gradientmail.algorithms.merge import WeightedMean
from gradientmail.algorithms.outer import Sgd
from gradientmail.algorithms.weights import Tokens
from gradientmail.codecs.layout import layout
from gradientmail.protocol.publishing import Hold, Publish, Publishing, Train
from gradientmail.protocol.schedule import RoundSchedule
from tests.rounds.small import posted

CASES = json.loads((Path(__file__).parent / "torchft_diloco.json").read_text())["cases"]

WEIGHT = layout([("weight", 1)])
RULE = Aggregator(merge=WeightedMean(), weights=Tokens(), outer=Sgd(lr=2.0))
FRAGMENTS, SYNC_EVERY, STEPS = 2, 6, 15
INNER_LR, GRADIENT = 1.0, 2.0


def starting_point() -> Tensor:
    vector = torch.zeros(WEIGHT.numel)
    vector[0] = 1.0
    return vector


@dataclass
class Fleet:
    """Both learners, which are always alike, and the closer."""

    alignment: Alignment
    publishing: Publishing
    committed: list[FragmentState] = field(
        default_factory=lambda: [
            FragmentState(layout=WEIGHT, version=0, sections={PARAMS: starting_point()})
            for _ in range(FRAGMENTS)
        ]
    )
    local: list[Tensor] = field(
        default_factory=lambda: [starting_point() for _ in range(FRAGMENTS)]
    )
    snapshots: dict[int, Tensor] = field(default_factory=dict)

    def train(self) -> None:
        for parameters in self.local:
            parameters[0] -= INNER_LR * GRADIENT

    def publish(self, round_index: int, step: int) -> None:
        fragment = self.publishing.schedule.fragment_of(round_index)
        self.snapshots[fragment] = self.local[fragment].clone()
        self.publishing = self.publishing.published(round_index, step)

    def resolve(self, step: int) -> int:
        """Close the round in flight and align with its commit; return its fragment."""
        (flight,) = self.publishing.in_flight
        fragment = self.publishing.schedule.fragment_of(flight.round_index)
        before, snapshot = self.committed[fragment], self.snapshots.pop(fragment)
        anchor = before.sections[PARAMS]
        delta = posted(WEIGHT, anchor - snapshot)
        after = RULE.close_round(before, [delta, delta]).state
        self.committed[fragment] = after
        self.local[fragment] = self.alignment.align(
            anchor, after.sections[PARAMS], self.local[fragment], snapshot
        ).clone()
        kept_steps = step - flight.at_step if self.alignment.keeps else 0
        self.publishing = self.publishing.aligned(fragment, after.version, step - kept_steps)
        return fragment


def boundary(fleet: Fleet, step: int) -> list[int]:
    """Do what is to be done after ``step``; return the fragments that were aligned."""
    aligned = []
    while True:
        match fleet.publishing.decide(step):
            case Publish(round_index):
                fleet.publish(round_index, step)
            case Hold():
                aligned.append(fleet.resolve(step))
            case Train():
                return aligned


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['overlap_steps']}-{c['mixing']}")
def test_the_trajectory_is_torchfts(case: dict[str, Any]) -> None:
    overlap, mixing = case["overlap_steps"], case["mixing"]
    schedule = RoundSchedule(SYNC_EVERY, FRAGMENTS, in_flight=1, overlap_steps=overlap)
    fleet = Fleet(
        alignment=Blend(mixing) if mixing else Overwrite(),
        publishing=Publishing(
            schedule=schedule, versions=(0, 0), anchored_at=(0, 0), last_step=-overlap
        ),
    )
    seen: list[list[float]] = [[1.0], [1.0]]
    closed_at = []
    for step in range(1, STEPS + 1):
        fleet.train()
        if boundary(fleet, step):
            closed_at.append(step)
        for fragment, values in enumerate(seen):
            values.append(fleet.local[fragment][0].item())
        if str(step) in case["global_after"]:
            found = [state.sections[PARAMS][0].item() for state in fleet.committed]
            assert found == pytest.approx(case["global_after"][str(step)], abs=1e-5)
    assert closed_at == [schedule.step_of(r) for r in range(5)]
    assert seen[0] == pytest.approx(case["local_fragment_0"], abs=1e-5)
    assert seen[1] == pytest.approx(case["local_fragment_1"], abs=1e-5)
