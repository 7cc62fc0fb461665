"""What is saved is enough: a learner restored from it does what the one before would have done."""

import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from gradientmail.errors import SettingsError
from gradientmail.learner.posts import Trained
from gradientmail.learner.saving import Saved, loaded, restore_training
from gradientmail.learner.state import State
from tests.learner.lone import Lone, flat, used

SETTINGS: dict[str, Any] = {
    "fragments": 2,
    "in_flight": 2,
    "alignment": "carry",
    "overlap_steps": None,
    "max_staleness": 1,
}


def saved_of(lone: Lone) -> Saved:
    return Saved(model=lone.model, optimizer=None, position=None, device=torch.device("cpu"))


def state_of(lone: Lone, residual: float = 0.25) -> State:
    outbox = {"residuals": [flat(residual), None]}
    return saved_of(lone).save(lone.desk.run, "ann", lone.training, outbox)


def in_the_middle() -> Lone:
    """A learner with one contribution pending, one in flight, and steps that no one has."""
    lone = Lone(**SETTINGS)
    lone.join(1.0, 2.0)
    lone.steps(5, 0.5, 0.25)
    lone.commit(1, 7.0)
    lone.steps(2, 0.5, 0.25)
    assert [len(fragment.posted) for fragment in lone.training.fragments] == [2, 1]
    return lone


def restored(state: State, lone: Lone) -> Lone:
    """Return another learner, restored from ``state`` of ``lone``."""
    other = Lone(**SETTINGS)
    tree = loaded(state, other.desk.run, "ann")
    saved_of(other).restore(tree)
    versions = [fragment.version for fragment in lone.training.fragments]
    restore_training(other.training, tree, versions, torch.device("cpu"))
    return other


def deltas(lone: Lone, skip: int = 0) -> list[tuple[int, int, float, Trained]]:
    return [
        (one.fragment, one.base.number, float(one.delta[0]), one.trained)
        for one in lone.wire.posted[skip:]
    ]


def test_a_restored_learner_goes_on_as_the_one_before() -> None:
    one = in_the_middle()
    two = restored(state_of(one), one)
    posted, carried_on = len(one.wire.posted), []
    for lone in (one, two):
        lone.commit(1, 3.0, fragment=1, **used(0))
        lone.steps(2, 0.5, 0.25)
        lone.commit(2, 4.0, **used(1))
        lone.steps(6, 0.5, 0.25)
        carried_on.append(lone.values)
    assert carried_on[0] == carried_on[1]
    assert deltas(one, skip=posted) == deltas(two)
    assert one.training.publishing == two.training.publishing
    assert one.wire.given_back == two.wire.given_back
    assert one.wire.forgotten == two.wire.forgotten


def test_a_snapshot_is_not_touched_by_what_is_trained_later() -> None:
    lone = in_the_middle()
    state = state_of(lone)
    tensors = copy.deepcopy(state.tensors)
    lone.steps(3, 0.5, 0.25)
    assert all(torch.equal(state.tensors[name], tensors[name]) for name in tensors)


def test_residuals_and_chance_are_in_the_state() -> None:
    lone = in_the_middle()
    state = state_of(lone, residual=0.125)
    drawn = torch.rand(3)
    tree = loaded(state, lone.desk.run, "ann")
    saved_of(lone).restore(tree)
    assert torch.equal(torch.rand(3), drawn)
    first, second = tree["outbox"]["residuals"]
    assert torch.equal(first, flat(0.125))
    assert second is None


@pytest.mark.parametrize(("run", "learner"), [("r2", "ann"), ("r1", "bob")])
def test_the_state_of_another_run_or_learner_is_refused(run: str, learner: str) -> None:
    lone = in_the_middle()
    here = cast("Any", SimpleNamespace(name=run))
    with pytest.raises(SettingsError, match="give each learner and run a --state-dir of its own"):
        loaded(state_of(lone), here, learner)
