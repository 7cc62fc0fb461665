"""Learners without a closer are killed, and what they come to is the same to the bit."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fleet import Fleet
from tests.e2e.team import make_run

NAMES = ("ann", "bob", "cyd")
SETTINGS: dict[str, Any] = {
    "sync_every": 4,
    "fragments": 2,
    "quorum": len(NAMES),
    "presence_s": 600.0,
    "poll_s": 0.02,
    "stop_after_rounds": 12,
    "topology": "ring",
}


def trained(home: Path, deaths: Sequence[str] = ()) -> dict[str, Any]:
    """Return what the learners are at the end; ann dies at each of ``deaths`` and comes back."""
    home.mkdir(exist_ok=True)
    make_run(home / "run", "noloco", **SETTINGS)
    with Fleet(home / "run", home) as fleet:
        for name in NAMES:
            fleet.start("learner", name, *deaths[:1] if name == "ann" else ())
        for following in [*deaths[1:], *[None] * bool(deaths)]:
            fleet.dies("ann")
            fleet.start("learner", "ann", *[following] if following else ())
        fleet.ends(*NAMES)
        return fleet.last_words(*NAMES)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize(
    "deaths",
    [
        ["before:put:gossip/0000/0000000002", "after:put:gossip/0001/0000000003"],
        ["before:save:3/", "after:save:9/", "before:step:13/", "after:step:14/"],
    ],
    ids=["posting", "saving"],
)
def test_a_killed_learner_goes_on_as_if_nothing_had_been(
    deaths: list[str], tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    assert trained(tmp_path, deaths) == undisturbed


def test_one_that_stays_away_is_not_waited_for_when_it_has_fallen_silent(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "gossip", **{**SETTINGS, "presence_s": 1.0})
    with Fleet(tmp_path / "run", tmp_path) as fleet:
        for name in NAMES:
            fleet.start("learner", name, *["after:step:10/"] if name == "cyd" else ())
        fleet.dies("cyd")
        fleet.ends("ann", "bob")
        words = fleet.last_words("ann", "bob")
    assert {word["steps"] for word in words.values()} == {24}
