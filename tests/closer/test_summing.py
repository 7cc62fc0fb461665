"""Sums over files have the bits of reading, decoding and adding, whatever the threads and cuts."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from gradientmail.algorithm import DELTA
from gradientmail.algorithms.combining import Combination, Decoded
from gradientmail.closer import summing
from gradientmail.closer.aggregation import side_by_side
from gradientmail.closer.summing import Fused, Posted
from gradientmail.codecs import native
from gradientmail.codecs.layout import CHUNK, TILE, chunks, layout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.precision import Precision
from gradientmail.codecs.streaming import FileSource, FileTarget, PayloadReader, PayloadWriter
from gradientmail.errors import PayloadError

FRAGMENT = layout(
    [("wte", 3000), ("up", CHUNK + 77), ("empty", 0), ("down", 2 * TILE + 1), ("bias", 5)],
    [("running_mean", 70)],
)
COEFFICIENTS = [[0.25 * (n + 1) * (s + 1) for s in range(6)] for n in range(3)]
UNITS = [[0.1 * (n + 1)] * 6 for n in range(3)]


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    before = native._kernels.reason
    assert native.warm_up(), native.why_not()
    yield
    native._kernels.reason = before


@pytest.fixture
def files() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def posted(folder: Path, files: ExitStack, precision: Precision, count: int) -> list[Posted]:
    form = PayloadFormat(FRAGMENT.numel, {DELTA: precision})
    sources = []
    for index in range(count):
        delta = torch.randn(FRAGMENT.numel, generator=torch.Generator().manual_seed(index))
        with FileTarget(folder / str(index)) as target:
            writer = PayloadWriter(form, target)
            for start, stop in chunks(0, FRAGMENT.numel):
                writer.write(DELTA, start, delta[start:stop])
        source = files.enter_context(FileSource(folder / str(index)))
        sources.append(Posted(PayloadReader(form, source)))
    return sources


def bits(combination: Combination) -> list[bytes]:
    parts = combination.total, combination.squares, combination.unit_squares
    return [part.view(torch.uint8).numpy().tobytes() for part in parts]


def ranges() -> list[tuple[int, int]]:
    end = FRAGMENT.parameters_end
    return [*chunks(0, end), *chunks(end, FRAGMENT.numel)]


@pytest.mark.parametrize("precision", list(Precision))
def test_sums_have_the_bits_of_the_plain_way(
    precision: Precision, tmp_path: Path, files: ExitStack
) -> None:
    sources = posted(tmp_path, files, precision, 3)
    fused, plain = Fused(FRAGMENT, precision, sources), Decoded(FRAGMENT, sources)
    for start, stop in ranges():
        for units in (UNITS, None):
            expected = bits(plain(start, stop, COEFFICIENTS, units))
            assert bits(fused(start, stop, COEFFICIENTS, units)) == expected


@pytest.mark.parametrize("precision", [Precision.I8, Precision.F32])
def test_cuts_leave_no_trace(
    precision: Precision, tmp_path: Path, files: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = posted(tmp_path, files, precision, 3)
    whole = Fused(FRAGMENT, precision, sources)(0, CHUNK, COEFFICIENTS, UNITS)
    monkeypatch.setattr(summing, "_ROOM_BYTES", 1)
    cut = Fused(FRAGMENT, precision, sources)(0, CHUNK, COEFFICIENTS, UNITS)
    assert bits(cut) == bits(whole)


def test_several_threads_share_one(tmp_path: Path, files: ExitStack) -> None:
    fused = Fused(FRAGMENT, Precision.I8, posted(tmp_path, files, Precision.I8, 3))

    def close(bounds: tuple[int, int]) -> list[bytes]:
        return bits(fused(*bounds, COEFFICIENTS, UNITS))

    alone = [close(bounds) for bounds in ranges()]
    with side_by_side(4) as each:
        assert list(each(close, ranges() * 5)) == alone * 5


def test_nothing_to_sum_is_zero() -> None:
    found = Fused(FRAGMENT, Precision.I8, [])(0, TILE, [], [])
    assert not found.total.any()
    assert not found.squares.any()


def test_what_was_damaged_since_it_was_judged_is_named(tmp_path: Path, files: ExitStack) -> None:
    sources: Sequence[Posted] = posted(tmp_path, files, Precision.I8, 3)
    path = tmp_path / "1"
    data = bytearray(path.read_bytes())
    data[sources[1].reader.header.data_start : sources[1].reader.header.data_start + 2] = b"\1\0"
    path.write_bytes(data)
    with pytest.raises(PayloadError, match="scale base"):
        Fused(FRAGMENT, Precision.I8, sources)(0, TILE, COEFFICIENTS, UNITS)
