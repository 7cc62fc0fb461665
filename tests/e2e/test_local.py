"""`local`: learners that exchange with nobody train as a bare loop does, to the bit."""

from pathlib import Path

import pytest
import torch
from torch import nn

import gradientmail as gm
from gradientmail.config import NodeSettings
from gradientmail.errors import SettingsError
from tests.e2e.team import make_run, objects_of
from tests.e2e.toy import BATCH, Points, toy_loss, toy_model

STEPS = 60


def train(model: nn.Module, learner: gm.Learner | None, points: Points) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        toy_loss(model, next(points)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if learner is not None:
            learner.step(tokens=BATCH)


def test_a_learner_trains_as_a_bare_loop_and_writes_nothing(tmp_path: Path) -> None:
    make_run(tmp_path, "local", sync_every=5, flush_on_close=True)
    before = objects_of(tmp_path)
    bare = toy_model()
    train(bare, None, Points(seed=1))
    model = toy_model(seed=99)
    with gm.Learner(str(tmp_path), model, name="ann") as learner:
        train(model, learner, Points(seed=1))
        assert learner.progress.steps == STEPS
        assert not learner.done
    for name, tensor in bare.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    assert objects_of(tmp_path) == before


def test_it_goes_on_from_its_own_state(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "local")
    model, points = toy_model(), Points(seed=2)
    node = NodeSettings(save_every_s=0.0)
    url, state = str(tmp_path / "run"), tmp_path / "state"
    with gm.Learner(url, model, state_dir=state, position=points, node=node) as learner:
        train(model, learner, points)
    again, there = toy_model(seed=5), Points(seed=3)
    with gm.Learner(url, again, state_dir=state, position=there) as learner:
        assert learner.progress.steps == STEPS
        for name, tensor in model.state_dict().items():
            assert torch.equal(again.state_dict()[name], tensor), name


def test_a_closer_has_nothing_to_do_there_and_says_so(tmp_path: Path) -> None:
    make_run(tmp_path, "local")
    with pytest.raises(SettingsError, match="exchange = 'nobody'"):
        gm.Closer(str(tmp_path)).run(until_done=True)
