"""Every preset trains on a directory, and what it leaves is sound to the bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.e2e.checker import Chain, check
from tests.e2e.team import PATIENCE_S, Team, make_run, objects_of, until_seen
from tests.e2e.toy import held_out_loss, toy_model

PRESETS: dict[str, dict[str, Any]] = {
    "diloco": {"sync_every": 15, "fragments": 1, "stop_after_rounds": 10},
    "streaming-diloco": {"sync_every": 12, "fragments": 2, "stop_after_rounds": 20},
    "decoupled-diloco": {
        "sync_every": 15,
        "fragments": 2,
        "in_flight": 2,
        "stop_after_rounds": 20,
    },
    "async-local-sgd": {
        "sync_every": 8,
        "stop_after_rounds": 40,
        "outer_settings": {"arrivals": 3},
    },
    "local-sgd": {"sync_every": 8, "fragments": 1, "stop_after_rounds": 16},
    "all-reduce": {"stop_after_rounds": 80},
    "fedavg": {"sync_every": 8, "stop_after_rounds": 16},
    "fedprox": {"sync_every": 8, "stop_after_rounds": 16},
    "fedavgm": {"sync_every": 8, "stop_after_rounds": 16},
    "fedadagrad": {"sync_every": 8, "stop_after_rounds": 30, "outer_lr": 0.05},
    "fedadam": {"sync_every": 8, "stop_after_rounds": 30, "outer_lr": 0.02},
    "fedyogi": {"sync_every": 8, "stop_after_rounds": 30, "outer_lr": 0.02},
}


def committed_model(chains: list[Chain]) -> nn.Module:
    """Return the model that the newest commits hold."""
    model = toy_model()
    values = {name: value for chain in chains for name, value in chain.params.items()}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name in values:
                tensor.copy_(values[name].view(tensor.shape))
    return model


@pytest.mark.parametrize("preset", PRESETS)
def test_three_learners_and_a_closer_train(preset: str, tmp_path: Path) -> None:
    make_run(tmp_path, preset, keep_versions=1000, **PRESETS[preset])
    with Team(tmp_path) as team:
        learners = [team.learner(name) for name in ("ann", "bob", "cyd")]
        until_seen(tmp_path, "ann", "bob", "cyd")
        closer = team.closer()
        ends = [learner.result(PATIENCE_S) for learner in learners]
        closer.result(PATIENCE_S)
    chains = check(objects_of(tmp_path))
    assert sum(len(chain.records) for chain in chains) == PRESETS[preset]["stop_after_rounds"]
    assert held_out_loss(committed_model(chains)) < held_out_loss(toy_model()) / 2
    for chain in chains:
        filled = [r["version"] for r in chain.records if not r.get("empty")]
        assert chain.derived == filled
        assert {learner for learner, _ in chain.used} == {"ann", "bob", "cyd"}
    assert all(end.progress.rejected is None for end in ends)
