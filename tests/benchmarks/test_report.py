"""Tables for a terminal and for the page, from what was kept."""

from pathlib import Path

import pytest
from benchmarks import report
from benchmarks.frame import Figure, Skipped, at_most
from benchmarks.machine import Machine

MACHINE = Machine(
    cores=2,
    cpu="a CPU",
    memory_gib=24.0,
    system="Linux 6",
    python="3.11.7",
    packages={"torch": "2"},
)
SLOW = Figure(what="put 1 KB", value=1.25, low=1.0, high=1.5, unit="x", target=at_most(1.1))
PAGE = """# Page

<!-- bench: machine -->
<!-- end -->

Words by hand.

<!-- bench: store -->
old
<!-- end -->
<!-- bench: codec -->
kept
<!-- end -->
<!-- bench: peers -->
<!-- end -->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    monkeypatch.setattr(report, "PAGES", (path,))
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    return path


def measured(*results: Figure | Skipped) -> report.Measured:
    return report.Measured(
        name="store",
        size="full",
        peer=False,
        commit="0123456789",
        code="0" * 32,
        at="2026-11-30",
        took_s=12.0,
        machine=MACHINE,
        results=results,
    )


def test_what_is_kept_reads_back(page: Path) -> None:
    run = measured(SLOW, Skipped(what="moto", reason="no server"))
    report.keep(run)
    assert report.kept("store") == run
    assert report.kept("codec") is None


def test_the_page_gets_tables_between_its_marks_and_nothing_else_changes(page: Path) -> None:
    report.keep(measured(SLOW))
    assert report.write_pages() == ["codec"]
    text = page.read_text()
    assert "old" not in text
    assert "| put 1 KB | 1.25 x | 1 .. 1.50 | <= 1.1 | NO |" in text
    assert "2 cores (a CPU), 24 GiB" in text
    assert "Words by hand." in text
    assert "kept" in text


def test_writing_the_page_twice_changes_nothing(page: Path) -> None:
    report.keep(measured(SLOW))
    report.write_pages()
    once = page.read_text()
    report.write_pages()
    assert page.read_text() == once


def test_what_was_measured_of_a_peer_under_the_same_name_stands_beside_ours(page: Path) -> None:
    theirs = Figure(what="put 1 KB", value=3, unit="x", of="other")
    slower = Figure(what="put 1 KB", value=5, unit="x", of="ours, without numba")
    alone = Figure(what="alone", value=1, unit="x", of="other")
    report.keep(measured(SLOW, theirs, slower, alone))
    report.write_pages()
    assert "| store | put 1 KB | 1.25 x | 3 x |" in page.read_text()
    assert "without numba" not in page.read_text().partition("bench: peers")[2]


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    header, lines = report.rows_of([Figure(what="join", value=9, unit="requests")])
    assert list(header) == ["what", "figure"]
    assert lines == [("join", "9 requests")]


def test_a_peer_brings_the_column_that_says_whose_figure_it_is() -> None:
    header, _ = report.rows_of([SLOW, Figure(what="put", value=2, unit="x", of="peer")])
    assert "of" in header


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456, "0.123"), (1.0, "1"), (12.34, "12.3"), (0.5, "0.500"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_a_skip_says_why_and_meets_nothing() -> None:
    run = measured(SLOW, Skipped(what="moto", reason="no server"))
    assert report.summary(run) == "0 of 1 targets met, 1 skipped"
