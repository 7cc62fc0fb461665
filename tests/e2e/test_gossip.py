"""Learners without a closer: they agree, they learn, and one that is killed comes back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradientmail.records import keys
from tests.e2e.team import PATIENCE_S, Team, Trained, keys_of, make_run
from tests.e2e.toy import held_out_loss, toy_model

NAMES = ("ann", "bob", "cyd", "dee")
QUICK: dict[str, Any] = {"sync_every": 10, "quorum": 4}


def vector(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def spread(ends: list[Trained]) -> float:
    """Return how far apart models are, in parts of their length."""
    vectors = torch.stack([vector(end.model) for end in ends])
    mean = vectors.mean(0)
    return float((vectors - mean).norm(dim=1).max() / mean.norm())


@pytest.mark.parametrize(
    ("preset", "topology"),
    [
        ("gossip", "ring"),
        ("gossip", "full"),
        ("gossip", "star"),
        ("gossip", "exponential"),
        ("gossip", "random-pairs"),
        ("noloco", "random-pairs"),
    ],
)
def test_learners_agree_and_learn_without_a_closer(
    preset: str, topology: str, tmp_path: Path
) -> None:
    make_run(tmp_path, preset, topology=topology, stop_after_rounds=12, **QUICK)
    with Team(tmp_path) as team:
        running = [team.learner(name) for name in NAMES]
        ends = [learner.result(PATIENCE_S) for learner in running]
    assert all(end.progress.versions == (12,) for end in ends)
    assert all(end.progress.applied == 12 for end in ends)
    assert spread(ends) < (1e-6 if topology == "full" else 0.1)
    for end in ends:
        assert held_out_loss(end.model) < held_out_loss(toy_model()) / 2
    assert not [
        key for key in keys_of(tmp_path) if key.startswith(("commits/", "terms/", "mail/"))
    ]


def test_what_neighbours_no_longer_need_is_deleted(tmp_path: Path) -> None:
    make_run(tmp_path, "gossip", stop_after_rounds=9, keep_versions=3, fragments=2, **QUICK)
    with Team(tmp_path) as team:
        running = [team.learner(name) for name in NAMES]
        for learner in running:
            learner.result(PATIENCE_S)
    left = {keys.parse_gossip(key) for key in keys_of(tmp_path, keys.gossip_of(0))}
    assert {version for version, _ in filter(None, left)} <= {3, 4, 5}


def test_one_that_leaves_is_not_waited_for_and_one_that_joins_begins_where_others_are(
    tmp_path: Path,
) -> None:
    make_run(tmp_path, "gossip", topology="full", stop_after_rounds=40, sync_every=10)
    with Team(tmp_path) as team:
        ann = team.learner("ann")
        bob = team.learner("bob", leave_if=lambda learner: learner.progress.versions[0] >= 8)
        assert bob.result(PATIENCE_S).progress.versions[0] >= 8
        cyd = team.learner("cyd")
        ends = [ann.result(PATIENCE_S), cyd.result(PATIENCE_S)]
    assert [end.progress.versions for end in ends] == [(40,), (40,)]
    assert ends[1].progress.steps < ends[0].progress.steps
    assert held_out_loss(ends[1].model) < held_out_loss(toy_model()) / 2


def test_a_learner_goes_on_from_its_own_state(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "noloco", stop_after_rounds=16, sync_every=10)
    state = tmp_path / "ann"
    with Team(tmp_path / "run") as team:
        bob = team.learner("bob")
        first = team.learner(
            "ann", state_dir=state, leave_if=lambda learner: learner.progress.versions[0] >= 5
        )
        stopped = first.result(PATIENCE_S)
        again = team.learner("ann", state_dir=state)
        ends = [again.result(PATIENCE_S), bob.result(PATIENCE_S)]
    assert ends[0].progress.steps > stopped.progress.steps
    assert [end.progress.versions for end in ends] == [(16,), (16,)]
