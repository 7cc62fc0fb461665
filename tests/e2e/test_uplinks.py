"""Contributions that hold little of what was trained still train, and verify bit for bit."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checker import check
from tests.e2e.team import PATIENCE_S, Team, make_run, objects_of, until_seen
from tests.e2e.test_presets import committed_model
from tests.e2e.toy import held_out_loss, toy_model

PLAIN: dict[str, Any] = {
    "sync_every": 8,
    "stop_after_rounds": 24,
    "keep_versions": 1000,
    "quorum": 2,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"uplink": "I2", "downlink": "I8"},
        {"uplink": "SIGN"},
        {"uplink": "SPARSE", "downlink": "SPARSE", "error_feedback_decay": 0.95},
        {"uplink": "I4", "rounding": "stochastic"},
    ],
    ids=["I2", "SIGN", "SPARSE", "I4-stochastic"],
)
def test_a_run_trains_and_every_version_can_be_derived(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    make_run(tmp_path, "local-sgd", **PLAIN, **settings)
    with Team(tmp_path) as team:
        learners = [team.learner(name) for name in ("ann", "bob")]
        until_seen(tmp_path, "ann", "bob")
        closer = team.closer()
        ends = [learner.result(PATIENCE_S) for learner in learners]
        closer.result(PATIENCE_S)
    chains = check(objects_of(tmp_path))
    assert [len(chain.derived) for chain in chains] == [24]
    assert all(end.progress.rejected is None for end in ends)
    assert held_out_loss(committed_model(chains)) < held_out_loss(toy_model()) / 2


def test_some_tensors_may_travel_in_a_finer_format_than_others(tmp_path: Path) -> None:
    """Embeddings, say: a module of its own is a fragment of its own, with an uplink of its own."""
    make_run(
        tmp_path,
        "local-sgd",
        **{**PLAIN, "fragments": 2, "stop_after_rounds": 8},
        uplink="SPARSE",
        modules={"1": {"uplink": "I8"}},
    )
    with Team(tmp_path) as team:
        learners = [team.learner(name) for name in ("ann", "bob")]
        until_seen(tmp_path, "ann", "bob")
        closer = team.closer()
        for learner in learners:
            learner.result(PATIENCE_S)
        closer.result(PATIENCE_S)
    objects = objects_of(tmp_path)
    manifest = json.loads(objects["manifest.json"])
    names = [[entry["name"] for entry in one["entries"]] for one in manifest["fragments"]]
    for number, tensors in enumerate(names):
        letters = [objects[key] for key in objects if key.startswith(f"mail/{number:04d}/")]
        expected = "I8" if all(name.startswith("1.") for name in tensors) else "SPARSE"
        assert letters
        for letter in letters:
            head = json.loads(letter[8 : 8 + int.from_bytes(letter[:8], "little")])
            record = json.loads(head["__metadata__"]["gradientmail"])
            assert record["precision"] == expected
    assert {name.split(".")[0] for tensors in names for name in tensors} == {"0", "1"}
