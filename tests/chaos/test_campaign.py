"""A campaign plays every scenario with every seed, and each store's twins once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gradientmail.chaos import campaign
from gradientmail.chaos.campaign import TWIN_SEEDS, Campaign
from gradientmail.chaos.judging import Verdict
from gradientmail.chaos.places import SkippedError
from gradientmail.chaos.recovery import Recoveries
from gradientmail.testing.clock import ManualClock


async def seeds(*numbers: int) -> AsyncIterator[int]:
    for number in numbers:
        yield number


def play(
    monkeypatch: pytest.MonkeyPatch, home: Path, names: list[str], losses: dict[str, float]
) -> tuple[Campaign, list[tuple[str, int]]]:
    """Play scenarios that take no time and come to these losses."""
    played = []

    async def judged(name: str, scenario: Any, place: Any, home: Path, **given: Any) -> Verdict:
        played.append((name, given["seed"]))
        return Verdict(
            scenario=name,
            seed=given["seed"],
            url=place.url,
            rounds=given["rounds"],
            derived=given["rounds"],
            loss=losses.get(name, 0.5) + 0.001 * (given["seed"] % 10),
            recoveries=Recoveries(gaps=[0.25]),
            did=(),
            wrong=(),
            seconds=1.0,
            start_s=2.0,
        )

    monkeypatch.setattr(campaign, "judged", judged)
    with Campaign(home, "file", 10, 3, ManualClock(), lambda line: None) as running:
        asyncio.run(running.play(names, seeds(4, 5)))
    return running, played


def test_twins_come_first_and_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    running, played = play(monkeypatch, tmp_path, ["kills", "pause"], {})
    twins = [("twin", TWIN_SEEDS + number) for number in range(3)]
    assert played == [*twins, ("kills", 4), ("pause", 4), ("kills", 5), ("pause", 5)]
    assert running.results.sound
    baseline = running.results.baselines["file"]
    assert baseline.promised_s == pytest.approx(2.0 + 1.5 + 2.25 + 1.5 + 0.2 + 0.1 + 0.25)


def test_a_loss_out_of_the_noise_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    running, _ = play(monkeypatch, tmp_path, ["kills", "pause"], {"pause": 0.6})
    wrong = [v.scenario for s, v in running.results.played if running.results.wrong(s, v)]
    assert wrong == ["pause", "pause"]
    assert not running.results.sound


def test_what_cannot_be_played_is_skipped_once_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(home: Path) -> None:
        raise SkippedError("may not mount")

    monkeypatch.setattr(campaign, "small_disk_place", refused)
    running, played = play(monkeypatch, tmp_path, ["full-disk"], {})
    assert (running.results.skipped, played) == ({"full-disk": "may not mount"}, [])
    assert running.results.sound
