"""Learners come late, leave, run twice under one name, or live in another century: no harm."""

import json
from functools import partial
from pathlib import Path

import pytest

from gradientmail.clock import SystemClock, system_random
from gradientmail.operations.stopping import request_stop
from tests.e2e.checker import check
from tests.e2e.team import (
    PATIENCE_S,
    Team,
    eventually,
    is_committed,
    keys_of,
    make_run,
    objects_of,
    on_store,
)
from tests.e2e.toy import held_out_loss, toy_model


def commits_of(url: Path) -> list[str]:
    return keys_of(url, "commits/0000/")


def stop(url: Path) -> None:
    on_store(url, lambda store: request_stop(store, "enough", rng=system_random()))


def test_a_late_joiner_starts_from_the_newest_version_and_a_leaver_is_not_waited_for(
    tmp_path: Path,
) -> None:
    make_run(tmp_path, sync_every=8, presence_s=600.0)
    with Team(tmp_path) as team:
        ann = team.learner("ann")
        closer = team.closer()
        bob = team.learner("bob", leave_if=lambda bob: bob.progress.versions[0] >= 5)
        eventually(partial(is_committed, tmp_path, 4))
        cyd = team.learner("cyd", leave_if=lambda cyd: cyd.progress.applied >= 3)
        bob.result(PATIENCE_S)
        cyd.result(PATIENCE_S)
        eventually(partial(is_committed, tmp_path, ann_alone := len(commits_of(tmp_path)) + 3))
        stop(tmp_path)
        assert ann.result(PATIENCE_S).progress.versions[0] >= ann_alone
        closer.result(PATIENCE_S)
    (chain,) = check(objects_of(tmp_path))
    assert min(base for learner, base in chain.used if learner == "cyd") >= 4
    assert held_out_loss(ann.result().model) < held_out_loss(toy_model()) / 2


def test_a_second_copy_under_one_name_counts_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(tmp_path, sync_every=8, presence_s=0.4, keep_versions=1000)

    def both_counted() -> bool:
        records = [json.loads(path.read_bytes()) for path in tmp_path.glob("commits/0000/[0-9]*")]
        used = [p for record in records for p in record.get("participants", [])]
        return len({p["incarnation"] for p in used}) == 2

    with Team(tmp_path) as team:
        twins = [team.learner("ann", seed=1), team.learner("ann", seed=2)]
        closer = team.closer()
        eventually(lambda: "another process trains under our name" in caplog.text)
        eventually(both_counted)
        stop(tmp_path)
        for twin in twins:
            twin.result(PATIENCE_S)
        closer.result(PATIENCE_S)
    check(objects_of(tmp_path))


class Skewed(SystemClock):
    """A clock whose idea of the date is off."""

    def __init__(self, off_s: float) -> None:
        super().__init__()
        self._off_s = off_s

    def now(self) -> float:
        return super().now() + abs(self._off_s)

    def wall(self) -> float:
        return super().wall() + self._off_s


def test_clocks_a_million_seconds_apart_do_no_harm(tmp_path: Path) -> None:
    make_run(tmp_path, sync_every=8, stop_after_rounds=10, quorum=2)
    with Team(tmp_path) as team:
        learners = [
            team.learner("ann", clock=Skewed(1e6)),
            team.learner("bob", clock=Skewed(-1e6)),
        ]
        closers = [
            team.closer("early", clock=Skewed(-1e6)),
            team.closer("late", clock=Skewed(1e6)),
        ]
        for end in [*learners, *closers]:
            end.result(PATIENCE_S)
    (chain,) = check(objects_of(tmp_path))
    assert {learner for learner, _ in chain.used} == {"ann", "bob"}


def test_a_long_run_leaves_only_what_a_reader_may_need(tmp_path: Path) -> None:
    make_run(
        tmp_path,
        "decoupled-diloco",
        sync_every=6,
        fragments=2,
        grace_s=0.02,
        stop_after_rounds=40,
        keep_versions=2,
    )
    with Team(tmp_path) as team:
        closer = team.closer()
        for learner in [team.learner("ann"), team.learner("bob")]:
            learner.result(PATIENCE_S)
        closer.result(PATIENCE_S)
    for fragment, chain in enumerate(check(objects_of(tmp_path))):
        assert len(chain.records) == 20
        left = {key.split("/")[2] for key in keys_of(tmp_path, f"fragments/{fragment:04d}/")}
        assert "0000000000" not in left
        assert len(left) < 20


def test_two_closers_side_by_side_leave_one_chain(tmp_path: Path) -> None:
    """Each believes that it holds the lease whenever the other has not renewed for a moment."""
    make_run(tmp_path, sync_every=6, stop_after_rounds=20, poll_s=0.02, lease_s=0.1)
    with Team(tmp_path) as team:
        closers = [team.closer("one"), team.closer("two")]
        for learner in [team.learner("ann"), team.learner("bob")]:
            learner.result(PATIENCE_S)
        for closer in closers:
            closer.result(PATIENCE_S)
    (chain,) = check(objects_of(tmp_path))
    assert len(chain.records) == 20
