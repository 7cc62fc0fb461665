"""The same fleet over every kind of store: in memory, on a disk, behind two S3 servers."""

from pathlib import Path

import pytest

from gradientmail.clock import fresh_nonce, system_random
from tests.e2e.checker import check
from tests.e2e.team import PATIENCE_S, Team, make_run, objects_of
from tests.e2e.toy import held_out_loss, toy_model

STORES = ("memory", "disk", "moto", "seaweedfs")


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, of each kind."""
    match request.param:
        case "memory":
            return f"memory://{fresh_nonce(system_random())}"
        case "disk":
            return str(tmp_path)
        case server:
            return str(request.getfixturevalue(f"{server}_url"))


def test_a_fleet_trains_over_it(url: str) -> None:
    make_run(
        url,
        "decoupled-diloco",
        sync_every=10,
        fragments=2,
        quorum=2,
        grace_s=0.5,
        stop_after_rounds=12,
        keep_versions=1000,
        lease_s=10.0,
        presence_s=10.0,
    )
    with Team(url) as team:
        closer = team.closer()
        learners = [team.learner("ann"), team.learner("bob")]
        ends = [learner.result(PATIENCE_S) for learner in learners]
        closer.result(PATIENCE_S)
    chains = check(objects_of(url))
    for chain in chains:
        assert chain.derived == [r["version"] for r in chain.records if not r.get("empty")]
        assert {learner for learner, _ in chain.used} == {"ann", "bob"}
    for end in ends:
        assert held_out_loss(end.model) < held_out_loss(toy_model()) / 2
