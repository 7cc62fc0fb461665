"""Learners without a closer: they agree, they learn, and one that is killed comes back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from gradientmail.clock import SystemClock
from gradientmail.operations.exporting import Exported, export_run
from gradientmail.operations.gossiping import UNRECORDED
from gradientmail.operations.status import run_status
from gradientmail.operations.verified import NotDerived
from gradientmail.operations.verifying import verify_run
from gradientmail.records import keys
from gradientmail.store.local import LocalStore
from tests.e2e.team import PATIENCE_S, Team, Trained, eventually, keys_of, make_run, on_store
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


def test_what_they_agree_on_is_exported_and_what_they_posted_verified(tmp_path: Path) -> None:
    url, out = tmp_path / "run", tmp_path / "model.safetensors"
    make_run(url, "gossip", topology="ring", stop_after_rounds=6, **QUICK)
    with Team(url) as team:
        running = [team.learner(name) for name in NAMES]
        ends = [learner.result(PATIENCE_S) for learner in running]
    store = LocalStore(url)

    exported = asyncio.run(export_run(store, out))

    assert exported == Exported((6,), NAMES)
    mean = torch.stack([vector(end.model) for end in ends]).mean(0)
    model = toy_model()
    model.load_state_dict(load_file(out))
    torch.testing.assert_close(vector(model), mean, rtol=0, atol=1e-6)
    assert held_out_loss(model) < held_out_loss(toy_model()) / 2
    status = asyncio.run(run_status(store, clock=SystemClock()))
    assert (status.state, status.fragments[0].version) == ("done", 6)
    assert all(0.0 < (one.presence.divergence or 0.0) < 0.1 for one in status.learners)
    verified = asyncio.run(verify_run(store, tmp_path / "spool", offload=asyncio.to_thread))
    assert verified.faults == ()
    kept = sum(key.startswith("gossip/") for key in keys_of(url))
    assert sum(one.payloads for one in verified.fragments) == kept + 1
    assert [one.not_derived for one in verified.fragments] == [
        (NotDerived(first=1, last=6, reason=UNRECORDED),)
    ]


def test_what_neighbours_no_longer_need_is_deleted(tmp_path: Path) -> None:
    make_run(tmp_path, "gossip", stop_after_rounds=9, keep_versions=3, fragments=2, **QUICK)
    with Team(tmp_path) as team:
        running = [team.learner(name) for name in NAMES]
        for learner in running:
            learner.result(PATIENCE_S)
    left = {keys.parse_gossip(key) for key in keys_of(tmp_path, keys.gossip_of(0))}
    assert {key.version for key in filter(None, left)} <= {3, 4, 5}


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


@pytest.mark.parametrize("gone", [False, True])
def test_one_stopped_in_a_round_takes_part_in_it_after_its_restart(
    tmp_path: Path, *, gone: bool
) -> None:
    url, state, mine = f"memory://{tmp_path}", tmp_path / "ann", keys.gossip(0, 1, "ann")
    make_run(url, "gossip", topology="full", stop_after_rounds=4, sync_every=10, quorum=2)
    with Team(url) as team:
        team.learner("ann", state_dir=state)
        eventually(lambda: mine in keys_of(url))
    if gone:
        on_store(url, lambda store: store.delete([mine]))
    with Team(url) as team:
        running = [team.learner("ann", state_dir=state), team.learner("bob")]
        ends = [learner.result(PATIENCE_S) for learner in running]
    assert [end.progress.versions for end in ends] == [(4,), (4,)]
    assert [end.progress.steps for end in ends] == [40, 40]
    assert spread(ends) < 1e-6
