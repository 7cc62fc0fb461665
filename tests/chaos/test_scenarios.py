"""A short run of each scenario: whatever is broken, what is left is verified in full."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradientmail.chaos import scenarios
from gradientmail.chaos.judging import Verdict, judged
from gradientmail.chaos.places import (
    Place,
    SkippedError,
    directory_place,
    server_place,
    small_disk_place,
)
from gradientmail.chaos.scenarios import SCENARIOS, crash_points, spoiling
from gradientmail.clock import SystemClock
from gradientmail.tasks import race
from gradientmail.testing.clock import ManualClock
from gradientmail.testing.proxy import Message
from gradientmail.testing.servers import S3Server

ROUNDS = {"crash-closer": 6, "crash-learner": 12, "kills": 20, "pause": 24, "clocks": 24}


def play(name: str, place: Place, home: Path, *, seed: int = 0, rounds: int = 10) -> Verdict:
    verdict = asyncio.run(
        judged(
            name,
            SCENARIOS[name],
            place,
            home,
            seed=seed,
            rounds=rounds,
            clock=SystemClock(),
        )
    )
    assert verdict.wrong == ()
    assert verdict.rounds == verdict.derived == rounds
    assert verdict.loss is not None
    return verdict


@pytest.fixture(autouse=True)
def _few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "POINTS_A_RUN", 2)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with directory_place(tmp_path) as place:
        yield place


@pytest.mark.parametrize(("name", "rounds"), ROUNDS.items())
def test_a_broken_run_is_sound(name: str, rounds: int, place: Place, tmp_path: Path) -> None:
    verdict = play(name, place, tmp_path, rounds=rounds)
    assert verdict.recoveries.faults == len(verdict.did) > 0


class Brief:
    """A stage whose run has closed half its rounds before a random wait is over."""

    rounds = 20

    def __init__(self) -> None:
        self.rng = random.Random(0)
        self.killed: list[str] = []
        self.started = asyncio.Event()

    async def wait(self, low_s: float, high_s: float) -> None:
        if low_s:
            await asyncio.Event().wait()

    async def until_closed(self, more: int) -> None:
        assert more == self.rounds // 2

    def kill(self, name: str) -> None:
        self.killed.append(name)

    def start(self, name: str) -> None:
        self.started.set()


async def test_a_run_that_is_soon_over_sees_a_kill_too() -> None:
    stage: Any = Brief()
    async with asyncio.timeout(10.0):
        await race(scenarios.kill_anyone(stage), stage.started.wait())
    assert stage.killed


class Filled(Brief):
    """A stage with one disk, whose run is over while that is full."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.place = self
        self.disks = (self,)
        self.root = Path("store")
        self.did: list[str] = []

    async def until_closed(self, more: int) -> None:
        assert more > 0

    def fill(self) -> None:
        self.started.set()

    def empty(self) -> None:
        self.did.append("emptied")

    def fault(self, what: str) -> None:
        self.did.append(what)


async def test_a_run_that_ends_while_a_disk_is_full_says_that_it_was() -> None:
    stage: Any = Filled()
    await race(scenarios.fill_disks(stage), stage.started.wait())
    assert stage.did == ["emptied", "store was full"]


@pytest.mark.parametrize("name", ["crash-closer", "crash-learner"])
def test_a_process_that_crashes_amid_a_round_goes_on(
    name: str, place: Place, tmp_path: Path
) -> None:
    # Long enough for a process to start again on a busy machine while others train on.
    verdict = play(name, place, tmp_path, seed=12, rounds=80)
    assert any("crashed at 25" in line for line in verdict.did)


def test_a_store_and_a_spool_that_fill_cost_time_only(tmp_path: Path) -> None:
    try:
        with small_disk_place(tmp_path) as place:
            # Eight rounds of a few ms each may be over before anybody sees that two are.
            verdict = play("full-disk", place, tmp_path, rounds=30)
            assert "was full" in " ".join(verdict.did)
    except SkippedError as reason:
        pytest.skip(str(reason))


def test_a_wire_that_spoils_answers_costs_time_only(
    seaweedfs_server: S3Server, tmp_path: Path
) -> None:
    with server_place(seaweedfs_server, tmp_path) as place:
        play("wire", place, tmp_path, rounds=8)
        assert place.proxy is not None
        assert len(place.proxy.requests) > 100


def test_every_point_is_reached_by_some_seed() -> None:
    points = {point for seed in range(48) for point in crash_points(seed, 96)}
    assert points == {f"{n}:{when}" for n in range(1, 97) for when in ("before", "after")}
    assert crash_points(0, 96) == crash_points(48, 96)


def test_a_seed_spoils_the_same_requests() -> None:
    request = Message("GET / HTTP/1.1", {})
    one, again = (spoiling(random.Random(7)) for _ in range(2))
    faults = [one(request) for _ in range(500)]
    assert faults == [again(request) for _ in range(500)]
    assert len(set(faults)) == 9
