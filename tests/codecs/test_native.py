"""Compiled kernels give the bits that torch gives, whatever the numbers; and may be missing."""

import itertools
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from gradientmail.algorithms.outer import Nesterov
from gradientmail.algorithms.reduce import (
    BLOCK,
    block_squares,
    per_block,
    tile_products,
    tile_sums,
)
from gradientmail.codecs import native
from gradientmail.codecs.blocks import LIMIT, decode_chunk, encode_chunk
from gradientmail.codecs.coarse import packed
from gradientmail.codecs.layout import CHUNK, TILE, layout
from gradientmail.codecs.precision import Precision
from gradientmail.errors import GradientMailError, NonFiniteError, PayloadError

SCALED = [Precision.F8_E4M3, Precision.I8, Precision.I4, Precision.NF4, Precision.F4]
scaled = pytest.mark.parametrize("precision", SCALED)
every = pytest.mark.parametrize("precision", [*SCALED, Precision.SPARSE])
SPECIAL = [0.0, -0.0, 1e-45, -1e-45, 1.2e-38, 2.0**-126, 2.0**-119, 0.5, 1.5, -2.5, 3.0, LIMIT]
"""Zeros of both signs, denormals, ties, the least scale, the limit."""


@pytest.fixture(autouse=True)
def compiled() -> Iterator[None]:
    before = native._kernels.reason
    assert native.warm_up(), native.why_not()
    yield
    native._kernels.reason = before


def by_torch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(native._kernels, "reason", "switched off")
    return monkeypatch


def bits(x: Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


def both_ways(x: Tensor, precision: Precision) -> None:
    """Compare entries and what is decoded from them."""
    with pytest.MonkeyPatch.context() as patch:
        by_torch(patch)
        chunk = encode_chunk(x, precision)
        said = decode_chunk(chunk, precision)
    found = encode_chunk(x, precision)
    assert {name: bits(items) for name, items in found.items()} == {
        name: bits(items) for name, items in chunk.items()
    }
    assert {name: items.dtype for name, items in found.items()} == {
        name: items.dtype for name, items in chunk.items()
    }
    assert bits(decode_chunk(found, precision)) == bits(said)


def same_outcome(chunk: dict[str, Tensor], precision: Precision) -> None:
    def outcome() -> bytes | str:
        try:
            return bits(decode_chunk(chunk, precision))
        except GradientMailError as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        by_torch(patch)
        said = outcome()
    assert outcome() == said


def stored_of(chunks: list[dict[str, Tensor]]) -> list[np.ndarray]:
    """Entries as sums take them: each [N, items]."""
    return [np.stack([native.as_array(one[name]) for one in chunks]) for name in chunks[0]]


floats = st.one_of(
    st.sampled_from(SPECIAL + [-value for value in SPECIAL]),
    st.floats(-(2.0**100), 2.0**100, width=32),
    st.integers(-1024, 1024).map(lambda n: n / 8),
)
tiles = hnp.arrays(np.float32, TILE, elements=floats, fill=st.sampled_from([0.0, -0.0, 1.0]))


@every
@settings(max_examples=40, deadline=None)
@given(tile=tiles)
def test_special_numbers_have_the_same_bits(precision: Precision, tile: np.ndarray) -> None:
    both_ways(torch.from_numpy(tile), precision)


@every
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.0, 40.0), power=st.sampled_from([1, 3]))
def test_numbers_of_many_orders_have_the_same_bits(
    precision: Precision, seed: int, spread: float, power: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2 * TILE, generator=generator)
    blocks = torch.randn(2 * TILE // 32, 1, generator=generator) * spread
    x = (x.view(-1, 32) * torch.exp2(blocks).clamp(2.0**-140, 2.0**90)).view(-1)
    both_ways((x**power).clamp(-LIMIT, LIMIT), precision)


@scaled
def test_every_tie_and_its_neighbours_have_the_same_bits(precision: Precision) -> None:
    """In each block a peak that makes the scale a power of two, and multiples of a quarter."""
    peak = {"I8": 127.0, "F8_E4M3": 448.0, "I4": 7.0, "NF4": 1.0, "F4": 6.0}[precision]
    x = torch.arange(-TILE // 2, TILE // 2) / (TILE // 2) * peak
    ties = (x * 8).round() / 8
    for exponent, values in itertools.product((-130, -119, -20, 0, 90), (x, ties)):
        rows = (values * 2.0**exponent).view(-1, 64).clone()
        rows[:, ::32] = peak * 2.0**exponent
        both_ways(rows.view(-1), precision)
        both_ways(torch.nextafter(rows, torch.tensor(0.0)).view(-1), precision)


@every
def test_whole_chunks_and_strided_views_have_the_same_bits(precision: Precision) -> None:
    x = torch.randn(2 * CHUNK, generator=torch.Generator().manual_seed(1))
    both_ways(x[:CHUNK], precision)
    both_ways(x[::2], precision)
    both_ways(torch.zeros(TILE), precision)
    both_ways(torch.zeros(0), precision)


@every
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), LIMIT * 1.01])
def test_what_cannot_be_sent_is_refused_in_the_same_words(
    precision: Precision, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(3 * TILE)
    x[TILE + 5] = value
    with pytest.raises((NonFiniteError, PayloadError)) as found:
        encode_chunk(x, precision)
    by_torch(monkeypatch)
    with pytest.raises(type(found.value)) as said:
        encode_chunk(x, precision)
    assert str(found.value) == str(said.value)


@scaled
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    base=st.one_of(st.integers(64, 1562), st.integers(-(2**15), 2**15 - 1)),
    mask=st.sampled_from([0x77, 0xFF]),
)
def test_any_bytes_decode_to_the_same_bits_or_the_same_error(
    precision: Precision, seed: int, base: int, mask: int
) -> None:
    _, scales, codes = precision.entries
    random = np.random.default_rng(seed)
    code = torch.from_numpy(random.integers(0, 256, TILE // codes.per, np.uint8)) & mask
    chunk = {
        "bases": torch.tensor([base], dtype=torch.int16),
        "scales": torch.from_numpy(random.integers(0, 256, TILE // scales.per, np.uint8)),
        "codes": code.view(torch.int8) if precision is Precision.I8 else code,
    }
    same_outcome(chunk, precision)


# -- sums ---------------------------------------------------------------------------------------

FRAGMENT = layout([("a", 700), ("b", 64), ("c", 2 * TILE)])


@settings(max_examples=60, deadline=None)
@given(
    places=st.lists(st.integers(0, TILE - 1), min_size=64, max_size=64).flatmap(
        lambda places: st.sampled_from([places, sorted(places)])
    ),
    codes=st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)),
    scales=st.lists(st.integers(-(2**15), 2**15 - 1) | st.just(0x3F80), min_size=2, max_size=2),
)
def test_any_sparse_bytes_decode_to_the_same_bits_or_the_same_error(
    places: list[int], codes: bytes, scales: list[int]
) -> None:
    indices = torch.tensor(places)
    chunk = {
        "scales": torch.tensor(scales, dtype=torch.int16).view(torch.bfloat16),
        "low": (indices & 0xFF).to(torch.uint8),
        "high": packed((indices >> 8).to(torch.uint8), 4),
        "codes": torch.frombuffer(bytearray(codes), dtype=torch.uint8),
    }
    same_outcome(chunk, Precision.SPARSE)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("kinds", [1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_sums_have_the_bits_of_decoding_scaling_and_adding_in_order(
    precision: Precision, kinds: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(count)
    chunks = [torch.randn(FRAGMENT.numel, generator=generator) * 10**k for k in range(count)]
    chunks[0][:64] *= 2.0**-20  # denormal in F16
    factors = torch.randn(kinds, count, 3, generator=generator)
    slots = per_block(FRAGMENT, [0.0, 1.0, 2.0], 0, FRAGMENT.numel).view(-1).to(torch.int32)
    encoded = [encode_chunk(x, precision) for x in chunks]
    found = native.room_for(FRAGMENT.numel // BLOCK)
    stored = stored_of(encoded)
    assert native.combine(stored, precision, factors.numpy(), slots.numpy(), found)
    by_torch(monkeypatch)
    sums = torch.zeros(2, FRAGMENT.numel)
    for index, one in enumerate(encoded):
        x = decode_chunk(one, precision).view(-1, BLOCK)
        for kind in range(kinds):
            sums[kind] += (x * factors[kind, index][slots.long()].unsqueeze(1)).view(-1)
    assert bits(found[0]) == bits(sums[0])
    assert bits(found[1]) == bits(block_squares(sums[0]))
    assert bits(found[2]) == bits(block_squares(sums[1]))


@settings(max_examples=20, deadline=None)
@given(
    tile=hnp.arrays(
        np.float32, TILE, elements=st.floats(width=32, allow_nan=False), fill=st.just(3e38)
    )
)
def test_squares_have_the_same_bits(tile: np.ndarray) -> None:
    found = block_squares(torch.from_numpy(tile))
    with pytest.MonkeyPatch.context() as patch:
        by_torch(patch)
        assert bits(found) == bits(block_squares(torch.from_numpy(tile)))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_sums_of_tiles_have_the_same_bits(seed: int) -> None:
    blocks = torch.randn(3, TILE // BLOCK, dtype=torch.float64, generator=torch.manual_seed(seed))
    found = tile_sums(blocks.exp())
    with pytest.MonkeyPatch.context() as patch:
        by_torch(patch)
        assert bits(found) == bits(tile_sums(blocks.exp()))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kept=st.floats(0.0, 0.999), rate=st.floats(1e-3, 2.0))
def test_steps_and_products_have_the_same_bits(seed: int, kept: float, rate: float) -> None:
    theta, gradient, momentum = torch.randn(3, 2 * TILE, generator=torch.manual_seed(seed)).exp()
    outer = Nesterov(lr=rate, momentum=kept)

    def outcome() -> list[object]:
        following, state = outer.update(theta, gradient, {"momentum": momentum})
        return [bits(following), bits(state["momentum"]), tile_products(theta, gradient)]

    found = outcome()
    with pytest.MonkeyPatch.context() as patch:
        by_torch(patch)
        assert found == outcome()


@pytest.mark.parametrize(
    ("precision", "entry", "damage"),
    [
        (Precision.I8, 0, 63),
        (Precision.I2, 0, 0x7F80),
        (Precision.SIGN, 0, -0x4080),
        (Precision.SPARSE, 0, -1),
        (Precision.SPARSE, 1, 255),
    ],
)
def test_one_damaged_contribution_is_found(precision: Precision, entry: int, damage: int) -> None:
    """A base too small, scales infinite, negative and NaN, an index above the next."""
    stored = stored_of([encode_chunk(torch.ones(TILE), precision)] * 2)
    stored[entry][1, 0] = damage
    factors, slots = np.ones((1, 2, 1), np.float32), np.zeros(TILE // BLOCK, np.int32)
    assert not native.combine(stored, precision, factors, slots, native.room_for(TILE // BLOCK))


@pytest.mark.parametrize("precision", [Precision.F32, Precision.F16, Precision.BF16])
@pytest.mark.parametrize("value", [float("nan"), -float("inf"), 2.0**101])
def test_one_damaged_float_is_found(precision: Precision, value: float) -> None:
    chunks = [encode_chunk(torch.ones(TILE), precision) for _ in range(2)]
    chunks[1]["values"][-1] = value
    factors, slots = np.ones((1, 2, 1), np.float32), np.zeros(TILE // BLOCK, np.int32)
    sums = native.room_for(TILE // BLOCK)
    assert not native.combine(stored_of(chunks), precision, factors, slots, sums)


def test_a_factor_that_would_make_nan_of_zeros_is_left_to_torch() -> None:
    stored = stored_of([encode_chunk(torch.ones(TILE), Precision.SPARSE)])
    factors, slots = np.full((1, 1, 1), np.inf, np.float32), np.zeros(TILE // BLOCK, np.int32)
    sums = native.room_for(TILE // BLOCK)
    assert not native.combine(stored, Precision.SPARSE, factors, slots, sums)


# -- when they are not there ----------------------------------------------------------------------


def test_small_fragments_are_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native._kernels, "reason", "not compiled yet")
    told: list[object] = []
    native.warm_up_for(native.WORTHWHILE - 1, lambda *words: told.append(words))
    assert native.why_not() == "not compiled yet"
    native.warm_up_for(native.WORTHWHILE, lambda *words: told.append(words))
    assert not native.why_not()
    assert not told


def test_nothing_is_compiled_before_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native._kernels, "reason", "not compiled yet")
    monkeypatch.setattr(native._kernels, "encoding", None)
    assert not native.serves(Precision.I8, torch.device("cpu"))
    assert encode_chunk(torch.ones(TILE), Precision.I8)["codes"].max() == 114


def test_warming_up_stays_within_its_arrays() -> None:
    """Kernels do not check indices: whatever lies behind would be read, or nothing may."""
    sizes: dict[str, list[int]] = {}

    class Kernels:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arrays: sizes.update({name: [getattr(a, "size", 0) for a in arrays]})

    native._call_all(Kernels(), Kernels())
    assert sizes["block_squares"] == [TILE, TILE // BLOCK]
    assert sizes["tile_products"] == [TILE, TILE, 1]
    assert sizes["tile_sums"] == [TILE // BLOCK, 1]


def test_sums_of_tiles_elsewhere_are_torchs() -> None:
    """A learner on a GPU has kernels for what is on its CPU."""
    blocks = torch.ones(2, TILE // BLOCK, dtype=torch.float64)
    found = native.tile_sums(blocks)
    assert found is not None
    assert found.tolist() == [64.0, 64.0]
    assert native.tile_sums(blocks.to("meta")) is None
    assert native.tile_sums(blocks.float()) is None
    assert native.tile_sums(blocks.t().contiguous().t()) is None


def test_other_devices_and_formats_are_torchs() -> None:
    assert native.serves(Precision.I8, torch.device("cpu"))
    assert not native.serves(Precision.I8, torch.device("meta"))
    assert not native.serves(Precision.BF16, torch.device("cpu"))


def test_without_numba_torch_does_the_work_and_the_reason_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("encoding", "decoding", "compiling"):
        monkeypatch.delitem(sys.modules, f"gradientmail.codecs.{module}", raising=False)
        monkeypatch.delattr(f"gradientmail.codecs.{module}", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(native._kernels, "reason", "not compiled yet")
    assert not native.warm_up()
    assert "numba" in native.why_not()
    told: list[object] = []
    native.warm_up_for(native.WORTHWHILE, lambda *words: told.append(words))
    assert told == [("torch codes without compiled kernels: %s", native.why_not())]
    assert encode_chunk(torch.ones(TILE), Precision.I8)["codes"].max() == 114
