"""Files in, files out: by chunks, and with an error that says what to do when there is no room."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, get_ident
from typing import Any

import pytest
import torch

from gradientmail.algorithm import algorithm_of
from gradientmail.closer.aggregation import (
    Files,
    _threads,
    aggregate,
    allow_open_files,
    roles,
    side_by_side,
)
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.closer.intake import Accepted
from gradientmail.closer.summing import Fused
from gradientmail.codecs.layout import CHUNK, TILE, layout
from gradientmail.config import RunSettings
from gradientmail.errors import PayloadError, StoreFullError
from tests.closer.bench import make_bench


def test_a_version_has_the_files_its_settings_call_for() -> None:
    def names(**settings: Any) -> dict[str, set[str]]:
        algorithm = algorithm_of(RunSettings(**settings))
        return {role: set(form.sections) for role, form in roles(algorithm, 4096).items()}

    assert names() == {"params": {"params"}, "outer": {"momentum"}}
    assert names(outer="sgd") == {"params": {"params"}}
    assert names(downlink="I8") == {
        "params": {"params"},
        "outer": {"momentum", "master"},
        "update": {"update"},
    }
    assert names(published="BF16")["outer"] == {"momentum", "master"}


async def test_no_room_in_the_spool_is_said_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await make_bench(tmp_path)
    layout, accepted = bench.run.layouts[0], list[Accepted]()
    desk = bench.desk()
    present = Files(params=await desk.spool.payload(bench.run.origin(0).params))
    target = {role: tmp_path / role for role in roles(bench.run.algorithm, layout.numel)}

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreFullError, match=f"{tmp_path}.*free some space"):
        aggregate(bench.run.algorithm, layout, accepted, present, target)
    monkeypatch.undo()
    aggregate(bench.run.algorithm, layout, accepted, present, target)


@pytest.fixture
def few_open_files() -> Iterator[int]:
    """The limit of a usual shell, as it were: only so many files more may be opened."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 30
    opened = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + few, limits[1]))
    allow_open_files.cache_clear()
    yield few
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_a_round_may_hold_more_contributions_than_a_shell_lets_files_be_open(
    tmp_path: Path, few_open_files: int
) -> None:
    bench = await make_bench(tmp_path)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    names = frozenset(f"learner-{number:02}" for number in range(2 * few_open_files))
    for name in names:
        await bench.post(name, bench.run.origin(0))
    version = await bench.while_time_passes(closer.close_next(lambda: names, lambda _: None))
    assert version.record is not None
    assert len(version.record.participants) == len(names)


def test_ranges_are_gone_through_side_by_side_and_come_in_their_order() -> None:
    met = Barrier(2, timeout=10)

    def meet(bounds: tuple[int, int]) -> int:
        met.wait()
        return bounds[0]

    with side_by_side(2) as each:
        assert list(each(meet, [(n * CHUNK, (n + 1) * CHUNK) for n in range(10)])) == [
            n * CHUNK for n in range(10)
        ]


@pytest.mark.parametrize(("threads", "numel"), [(2, 64), (1, 2 * CHUNK)])
def test_what_fits_in_a_chunk_or_is_for_one_thread_starts_none(threads: int, numel: int) -> None:
    with side_by_side(threads) as each:
        assert torch.get_num_threads() == 1
        found = set(each(lambda _: get_ident(), [(0, numel), (numel, 2 * numel)]))
        assert found == {get_ident()}
        assert not list(each(lambda _: get_ident(), []))


@pytest.mark.parametrize(
    ("merge", "compiled", "threads"),
    [
        ("weighted-mean", True, 1),
        ("radial-directional-mean", True, 1),
        ("weighted-mean", False, 2),
        ("coordinate-median", True, 2),
    ],
)
def test_two_threads_work_where_torch_does(merge: str, *, compiled: bool, threads: int) -> None:
    algorithm = algorithm_of(RunSettings(merge=merge, quorum=3))
    fused = Fused(layout([("w", TILE)]), algorithm.delta_dtype, []) if compiled else None
    assert _threads(algorithm, fused) == threads


def test_an_error_in_one_range_ends_all_and_torch_keeps_its_threads() -> None:
    before = torch.get_num_threads()

    def fail(bounds: tuple[int, int]) -> int:
        if bounds[0] == 3 * CHUNK:
            raise PayloadError("no")
        return bounds[0]

    with pytest.raises(PayloadError, match="no"), side_by_side(2) as each:
        list(each(fail, [(n * CHUNK, (n + 1) * CHUNK) for n in range(100)]))
    assert torch.get_num_threads() == before
