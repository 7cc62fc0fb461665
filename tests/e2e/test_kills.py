"""Any process may be killed at any instant, and started again: SIGKILL to real processes.

Where the schedule defines the result (everybody waits for everybody), it is the same to the bit as
that of a run in which nothing happened: commits, models, optimizers and generators.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checker import check
from tests.e2e.fleet import Fleet
from tests.e2e.team import eventually, is_committed, make_run, objects_of, until_seen

LEARNERS = ("ann", "bob")
SYNCHRONOUS: dict[str, Any] = {
    "sync_every": 4,
    "fragments": 2,
    "overlap_steps": 0,
    "quorum": len(LEARNERS),
    "grace_s": None,
    "presence_s": 600.0,
    "lease_s": 1.0,
    "poll_s": 0.02,
    "stop_after_rounds": 12,
    "uplink": "I4",
    "downlink": "I8",
    "keep_versions": 1000,
}


@dataclass(frozen=True)
class Result:
    """What a run comes to."""

    payloads: list[list[tuple[str | None, ...]]]
    learners: dict[str, Any]


def result_of(fleet: Fleet) -> Result:
    """Return what the run has come to, once it is found sound."""
    chains = check(objects_of(fleet.run))
    for chain in chains:
        assert chain.derived == list(range(1, len(chain.records) + 1))
    return Result([chain.payloads for chain in chains], fleet.last_words(*LEARNERS))


def start_all(fleet: Fleet) -> None:
    for name in LEARNERS:
        fleet.start("learner", name)
    until_seen(fleet.run, *LEARNERS)
    fleet.start("closer", "closer")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """What the synchronous run comes to when nothing happens to it."""
    home = tmp_path_factory.mktemp("undisturbed")
    make_run(home / "run", **SYNCHRONOUS)
    with Fleet(home / "run", home) as fleet:
        start_all(fleet)
        fleet.ends("closer", *LEARNERS)
        return result_of(fleet)


@pytest.fixture
def fleet(tmp_path: Path) -> Any:
    make_run(tmp_path / "run", **SYNCHRONOUS)
    with Fleet(tmp_path / "run", tmp_path) as fleet:
        yield fleet


def run_with_deaths(fleet: Fleet, role: str, name: str, points: Sequence[str]) -> None:
    """Run to the end; ``name`` dies at each of ``points`` in turn and is started again."""
    for learner in LEARNERS:
        fleet.start("learner", learner, *points[:1] if learner == name else ())
    until_seen(fleet.run, *LEARNERS)
    fleet.start("closer", "closer", *points[:1] if name == "closer" else ())
    for following in [*points[1:], None]:
        fleet.dies(name)
        fleet.start(role, name, *[following] if following else ())
    fleet.ends("closer", *LEARNERS)


@pytest.mark.parametrize(
    "points",
    [
        ["before:put:mail/0000/0000000001", "after:put:mail/0001/0000000002"],
        ["before:save:3/", "after:save:4/", "before:step:9/", "after:step:10/"],
        ["before:save:2/"] * 8,
        ["after:put:learners/ann", "before:put:learners/ann"],
    ],
    ids=["posting", "saving", "after-every-step", "being-seen"],
)
def test_a_killed_learner_goes_on_as_if_nothing_had_been(
    points: list[str], fleet: Fleet, undisturbed: Result
) -> None:
    run_with_deaths(fleet, "learner", "ann", points)
    assert result_of(fleet) == undisturbed


@pytest.mark.parametrize(
    "points",
    [
        ["before:put:fragments/0000/0000000002", "after:put:fragments/0001/0000000003"],
        ["before:create:commits/0000/0000000002", "after:create:commits/0001/0000000003"],
        ["before:put:head.json", "after:create:terms/0000000002", "before:put:terms/0000000003"],
    ],
    ids=["uploading", "committing", "telling"],
)
def test_a_killed_closer_is_replaced_without_a_trace(
    points: list[str], fleet: Fleet, undisturbed: Result
) -> None:
    run_with_deaths(fleet, "closer", "closer", points)
    assert result_of(fleet) == undisturbed


def test_all_processes_killed_at_once_go_on_from_the_same_bytes(
    fleet: Fleet, undisturbed: Result
) -> None:
    for version in (2, 4):
        start_all(fleet)
        eventually(partial(is_committed, fleet.run, version))
        fleet.kill("closer", *LEARNERS)
    start_all(fleet)
    fleet.ends("closer", *LEARNERS)
    assert result_of(fleet) == undisturbed


ASYNCHRONOUS: dict[str, dict[str, Any]] = {
    "streaming-diloco": {"stop_after_rounds": 16},
    "decoupled-diloco": {"stop_after_rounds": 30, "grace_s": 0.02, "max_staleness": 1},
}


@pytest.mark.parametrize("preset", ASYNCHRONOUS)
def test_where_nobody_waits_for_all_kills_cost_time_only(preset: str, tmp_path: Path) -> None:
    quick = {"sync_every": 6, "fragments": 2, "presence_s": 1.0, "lease_s": 1.0, "poll_s": 0.02}
    settings = {**quick, **ASYNCHRONOUS[preset], "keep_versions": 1000}
    make_run(tmp_path / "run", preset, **settings)
    with Fleet(tmp_path / "run", tmp_path, save_every_s=0.3) as fleet:
        start_all(fleet)
        for version, name in ((2, "ann"), (4, "closer"), (6, "bob")):
            eventually(partial(is_committed, fleet.run, version))
            fleet.kill(name)
            fleet.start("closer" if name == "closer" else "learner", name)
        fleet.ends("closer", *LEARNERS)
    chains = check(objects_of(fleet.run))
    assert sum(len(chain.records) for chain in chains) == settings["stop_after_rounds"]
    for chain in chains:
        assert {learner for learner, _ in chain.used} == set(LEARNERS)
        assert chain.derived == [r["version"] for r in chain.records if not r.get("empty")]
