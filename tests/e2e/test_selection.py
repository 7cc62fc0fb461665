"""A run that asks a fraction of its learners, others in each round."""

import json
from pathlib import Path
from typing import Any

from gradientmail.protocol.selection import RandomFraction
from tests.e2e.team import PATIENCE_S, Team, make_run, objects_of, until_seen

NAMES = ("ann", "bob", "cyd", "dee")
ROUNDS = 12


def commits(url: Path) -> list[dict[str, Any]]:
    found = objects_of(url)
    return [json.loads(found[key]) for key in sorted(found) if key.startswith("commits/0000/")]


def used(record: dict[str, Any]) -> set[str]:
    return {one["learner"] for one in record.get("participants", ())}


def mail(url: Path) -> set[tuple[int, str]]:
    """(base, learner) of everything that was posted and is still there."""
    parts = [key.split("/") for key in objects_of(url) if key.startswith("mail/")]
    return {(int(part[2]), part[3]) for part in parts}


def test_each_round_is_of_those_it_asks_for_and_the_others_post_nothing(tmp_path: Path) -> None:
    make_run(
        tmp_path,
        "fedavg",
        sync_every=3,
        selection="random",
        selection_settings={"fraction": 0.5},
        stop_after_rounds=ROUNDS,
        retain=True,
    )
    with Team(tmp_path) as team:
        learners = [team.learner(name) for name in NAMES]
        until_seen(tmp_path, *NAMES)
        closer = team.closer()
        ends = [learner.result(PATIENCE_S) for learner in learners]
        closer.result(PATIENCE_S)
    records = commits(tmp_path)
    assert len(records) == ROUNDS
    rule, run = RandomFraction(0.5), records[0]["run"]
    for round_index, record in enumerate(records[:-1]):  # near the end learners leave
        asked = rule.asked(run, round_index, dict.fromkeys(NAMES, frozenset()))
        assert used(record) == asked
        assert {learner for base, learner in mail(tmp_path) if base == round_index} == asked
        assert all(one["steps"] == 3 for one in record["participants"])
    assert set.union(*map(used, records)) == set(NAMES)
    assert all(end.progress.rejected is None for end in ends)


def test_rounds_can_ask_for_tags(tmp_path: Path) -> None:
    make_run(
        tmp_path,
        "fedavg",
        sync_every=2,
        selection="tags",
        selection_settings={"tags": ["gpu"]},
        stop_after_rounds=6,
    )
    with Team(tmp_path) as team:
        learners = [team.learner("ann", tags="eu,gpu"), team.learner("bob", tags="eu")]
        until_seen(tmp_path, "ann", "bob")
        closer = team.closer()
        for learner in learners:
            learner.result(PATIENCE_S)
        closer.result(PATIENCE_S)
    assert [used(record) for record in commits(tmp_path)] == [{"ann"}] * 6
