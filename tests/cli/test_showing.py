"""The tables say what a person asks, within the width there is; the JSON says all."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from gradientmail.cli.showing import rendered
from gradientmail.config import RunSettings
from gradientmail.operations.status import (
    CloserStatus,
    FragmentStatus,
    LearnerStatus,
    RunStatus,
)
from gradientmail.records.commit import Participant, Rejection, RoundRecord
from gradientmail.records.estimates import Estimates
from gradientmail.records.manifest import PayloadRef
from gradientmail.records.presence import Presence
from tests.cli.conftest import Cli

NOW_S = 1_000_000.0
NONCE = "0" * 32
DIGEST = f"xxh3_128:{NONCE}"


def participant(learner: str, weight: float) -> Participant:
    return Participant(
        learner=learner,
        incarnation=NONCE,
        nonce=NONCE,
        base=11,
        steps=100,
        tokens=51_200,
        weight=weight,
        norm=1.0,
        clip=1.0,
        key="mail",
        digest=DIGEST,
        divergence=0.01234,
        cosine=0.456,
    )


def commit(fragment: int) -> RoundRecord:
    return RoundRecord(
        run="run-1",
        fragment=fragment,
        version=12,
        parent=DIGEST,
        params=PayloadRef(key="p", size_bytes=1, digest=DIGEST),
        participants=(
            participant("gpu-box", 9.0),
            participant("laptop", 1.0),
            participant("laptop", 2.0),
        ),
        rejected=tuple(Rejection(key=f"mail/{n}", reason="zero [bold] tokens") for n in range(6))
        if fragment == 1
        else (),
        cosine=0.3125,
        norm=1.234567,
        estimates=Estimates(step_s=0.035, quorum_s=12.0, sync_s=0.4),
        closer="c1",
        term=2,
        nonce=NONCE,
        closed_at=NOW_S - 90,
    )


def learner(name: str, state: str, age_s: float) -> LearnerStatus:
    presence = Presence(
        run="run-1",
        learner=name,
        incarnation=NONCE,
        count=7,
        versions=(12, 12),
        steps=12_345,
        tokens=6_320_640,
        step_s=0.0351,
        loss=2.41234,
        posted=12,
        applied=11,
        bytes_up=123_456_789,
        bytes_down=234_567_890,
        waited_s=3.0,
    )
    return LearnerStatus(name=name, state=state, age_s=age_s, presence=presence)


def example(**changes: object) -> RunStatus:
    status = RunStatus(
        run="run-f728b4fa4248",
        created_at=0.0,
        created_by="gradientmail",
        program="m:f",
        state="running",
        rounds=24,
        settings=RunSettings(algorithm="decoupled-diloco", sync_every=100, fragments=3),
        closer=CloserStatus(name="closer-box-1a2b3c", term=2, beats=148, released=False),
        fragments=(
            *(
                FragmentStatus(
                    fragment=p,
                    version=12,
                    tensors=17,
                    elements=1_234_567,
                    params_bytes=1,
                    commit=commit(p),
                )
                for p in range(2)
            ),
            FragmentStatus(
                fragment=2, version=0, tensors=1, elements=10, params_bytes=1, commit=None
            ),
        ),
        learners=(
            learner("gpu-box", "live", 2.0),
            learner("laptop", "silent", 7300.0),
            learner("pi", "left", -3.0),
        ),
        notices=("no learner is live: start one with `gradientmail learner`",),
    )
    return msgspec.structs.replace(status, **changes)


def text_of(status: RunStatus, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(rendered(status, NOW_S))
    return console.file.getvalue()


def test_it_shows_who_contributed_how_much_and_what_was_refused() -> None:
    text = text_of(example(), 100)

    assert "run-f728b4fa4248  running, 24 rounds closed" in text
    assert "lease: closer-box-1a2b3c (term 2, beat 148)" in text
    row = next(line for line in text.splitlines() if "gpu-box 75%, laptop 25%" in line)
    assert row.split()[:6] == ["0", "12", "1.23M", "1.5", "min", "0.312"]
    assert "zero [bold] tokens (mail/0)" in text
    assert "and 1 more" in text
    assert "note: no learner is live" in text


def test_every_learner_is_a_line_with_its_counters() -> None:
    line = next(x for x in text_of(example(), 100).splitlines() if x.startswith("laptop "))

    cells = "laptop|silent|2.0 h|12.3k|0.035 s|6.32M|2.412|11/12|123 MB|235 MB"
    assert line.split() == cells.replace("|", " ").split()


@pytest.mark.parametrize("width", [80, 100])
def test_a_row_stays_on_one_line_where_names_are_of_usual_length(width: int) -> None:
    lines = text_of(example(), width).splitlines()

    assert max(len(line) for line in lines) <= width
    assert sum("gpu-box" in line for line in lines) == 4


def test_long_names_fold_and_do_not_widen() -> None:
    status = example(learners=(learner("x" * 64, "live", 0.0),))

    assert max(len(line) for line in text_of(status, 100).splitlines()) <= 100


def test_a_released_lease_is_nobodys() -> None:
    released = CloserStatus(name="c1", term=2, beats=9, released=True)

    assert "lease: nobody" in text_of(example(closer=released), 100)
    assert "lease: nobody" in text_of(example(closer=None), 100)


def test_without_a_closer_it_shows_who_mixes_and_how_far_apart_they_are() -> None:
    near, new = learner("gpu-box", "live", 2.0), learner("pi", "live", 2.0)
    presence = msgspec.structs.replace(near.presence, divergence=0.01234)
    near = msgspec.structs.replace(near, presence=presence)
    settings = RunSettings(algorithm="gossip", exchange="gossip", topology="star")
    status = example(settings=settings, learners=(near, new), closer=None, fragments=())
    text = text_of(status, 100)
    assert "no closer, topology: star" in text
    (row,) = (line.split() for line in text.splitlines() if line.startswith("gpu-box "))
    assert row[-1] == "0.012"


def test_the_command_prints_tables_or_one_json_object(cli: Cli, run_url: Path) -> None:
    human, as_json = cli("status", run_url), cli("status", run_url, "--json")

    assert (human.exit_code, as_json.exit_code) == (0, 0)
    assert "0 rounds closed" in human.stdout
    status = msgspec.json.decode(as_json.stdout, type=RunStatus)
    assert [one.fragment for one in status.fragments] == [0, 1]
    assert as_json.stderr == ""


@pytest.mark.parametrize("flags", [["--watch"], ["--watch", "--json"]])
def test_watching_looks_again_until_the_run_is_done(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, run_url: Path, flags: list[str]
) -> None:
    looks = [example(rounds=1), example(rounds=2), example(rounds=3, state="done")]

    async def next_look(*_: object, **__: object) -> RunStatus:
        return looks.pop(0)

    monkeypatch.setattr("gradientmail.cli.showing.run_status", next_look)
    monkeypatch.setattr("gradientmail.cli.showing.WATCH_S", 0.0)

    result = cli("status", run_url, *flags)

    assert result.exit_code == 0
    assert looks == []
    if "--json" in flags:
        lines = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
        assert [line["rounds"] for line in lines] == [1, 2, 3]
    else:
        assert result.stdout.count("rounds closed") == 3


def test_it_shows_who_was_late_who_was_left_out_and_what_a_round_lacked() -> None:
    late = msgspec.structs.replace(participant("laptop", 3.0), base=9)
    out = msgspec.structs.replace(participant("liar", 9.0), suppressed=True)
    used = (participant("gpu-box", 9.0), late, out)
    record = msgspec.structs.replace(commit(0), participants=used)
    short = msgspec.structs.replace(commit(1), participants=(), missing="Krum needs 5")
    fragments = tuple(
        FragmentStatus(
            fragment=p, version=12, tensors=1, elements=10, params_bytes=1, commit=found
        )
        for p, found in enumerate((record, short))
    )
    text = text_of(example(fragments=fragments), 200)
    assert "gpu-box 75%, laptop 25%, liar 0%" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["laptop", "0", "12", "2", "1", "0.012", "0.46"] in rows
    assert ["liar", "0", "12", "0", "1", "0.012", "0.46", "suppressed"] in rows
    assert "nobody: Krum needs 5" in text
