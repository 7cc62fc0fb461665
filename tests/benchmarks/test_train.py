"""The training benchmark: cells have the same bits each time, are kept, and compared fairly."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from benchmarks import train, train_page, training
from benchmarks.train import Bench, Cell, bars, ways
from benchmarks.training import AllReduce, Alone, Fleet, Task

from gradientmail.errors import SettingsError
from gradientmail.programs.gpt import Shape

TASK = Task(
    shape=Shape(layers=2, width=16, heads=2, context=16),
    batch=4,
    common_steps=2,
    steps=12,
    held_out_windows=16,
)
DILOCO = Fleet(preset="diloco", settings={"sync_every": 6, "uplink": "I8", "downlink": "I8"})


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(TASK, tmp_path_factory.mktemp("cells"))


def test_a_cell_has_the_same_bits_each_time(bench: Bench) -> None:
    found = []
    for _ in range(2):
        start = training.start_of(TASK, 0, bench._text)
        trained = training.train(start, DILOCO)
        found.append(dataclasses.replace(trained, cpu_s=0.0))
    assert found[0] == found[1]
    assert found[0].tokens == 12 * 4 * 4 * 16
    assert found[0].steps == 12


def test_bits_are_those_of_the_payloads(bench: Bench) -> None:
    start = training.start_of(TASK, 0, bench._text)
    trained = training.train(start, DILOCO)
    nominal = 2 * 8 * 1.016  # two rounds of I8
    assert nominal <= trained.up_bits < 1.5 * nominal, "a small model is mostly padding"
    assert trained.up_bits == trained.down_bits
    assert training.train(start, AllReduce()).up_bits == 12 * 32
    assert training.train(start, Alone()).up_bits == 0


def test_a_kept_cell_is_not_trained_again_unless_its_settings_change(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench.cell("all-reduce", AllReduce(), seed=1)
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("trained again"))
    assert bench.cell("all-reduce", AllReduce(), seed=1) == first
    other = Bench(dataclasses.replace(TASK, rate=1.0), bench._folder)
    assert other.kept("all-reduce", AllReduce(), seed=1) is None


def test_what_is_not_built_is_refused_before_anything_is_trained(bench: Bench) -> None:
    with pytest.raises(SettingsError, match="unknown setting 'telepathy'"):
        bench.cell("x", Fleet(preset="diloco", settings={"sync_every": 6, "telepathy": 1}), 0)


def test_every_row_has_a_title_and_settings_that_work() -> None:
    rows = ways(train.SYNC_EVERY)
    assert set(rows) == set(train.TITLES)
    for way in rows.values():
        if isinstance(way, Fleet):
            training.settings_of(way, Task())


def cells(name: str, *losses: float, bits: float = 1.0) -> list[Cell]:
    made: dict[str, Any] = {"settings": "", "tokens": 1, "steps": 1, "cpu_s": 1.0}
    return [
        Cell(name=name, seed=seed, loss=loss, up_bits=bits, down_bits=bits, **made)
        for seed, loss in enumerate(losses)
    ]


def test_bars_compare_seed_by_seed() -> None:
    found = {
        "all-reduce": cells("all-reduce", 2.0, 3.0, bits=500.0),
        "diloco-nf4-both": cells("diloco-nf4-both", 2.01, 3.0),
        "averaging": cells("averaging", 2.2, 3.3),
        "diloco": cells("diloco", 2.0, 3.0),
        "diloco-nf4": cells("diloco-nf4", 2.0),
    }
    values = [(bar.value, bar.met) for bar in bars(found)]
    assert values == [
        (pytest.approx(0.25), True),
        (500.0, True),
        (pytest.approx(10.0), True),
        (0.0, True),
    ]


def test_the_page_keeps_the_words_around_its_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_page, "PAGE", tmp_path / "results.md")
    monkeypatch.setattr(train_page, "PLOT", tmp_path / "results.svg")
    begin, end = train_page.BEGIN, train_page.END
    train_page.PAGE.write_text(f"before\n{begin}\nstale\n{end}\nafter\n")
    found = {"all-reduce": cells("all-reduce", 2.0), "averaging": cells("averaging", 2.1)}
    train_page.write(Task(), train.TITLES, found, tuple(bars(found)))
    text = train_page.PAGE.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    assert "+5.00 %" in text
    assert train_page.PLOT.read_text().startswith("<?xml")
