"""A contribution is judged by its bytes; a bad one costs its learner a reason, nobody a round."""

import math
from pathlib import Path
from typing import Any

import pytest

from gradientmail.closer.intake import Accepted, Intake, Rejected, Verdict
from gradientmail.protocol.judging import Round
from gradientmail.records import canonical, keys
from tests.closer.bench import Bench, inline, make_bench

SAMPLE = "xxh3_128:" + "0" * 32


def round_of(bench: Bench) -> Round:
    origin = bench.run.origin(0)
    return Round(
        run=bench.run.name,
        fragment=0,
        version=1,
        anchors={0: origin.digest},
        precision=bench.run.algorithm.delta_dtype,
        tensors=len(bench.run.layouts[0].slots),
        weighs_samples=False,
        applied={},
    )


async def judged(bench: Bench, key: str, data: bytes) -> Verdict | None:
    """Return the verdict on ``data`` posted under ``key``."""
    await bench.store.put(key, [data])
    (entry,) = [entry for entry in await bench.store.list(key) if entry.key == key]
    parsed = keys.parse_mail(key)
    assert parsed is not None
    desk = bench.desk()
    intake = Intake(
        store=bench.store,
        spool=desk.spool,
        layout=bench.run.layouts[0],
        payload_format=bench.run.algorithm.delta_format(bench.run.layouts[0].numel),
        offload=inline,
    )
    return await intake.judge(round_of(bench), parsed, entry)


async def test_a_good_one_is_accepted_with_the_norms_found_in_its_data(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    key, data = bench.contribution("ann", bench.run.origin(0), fill=2.0)
    verdict = await judged(bench, key, data)
    assert isinstance(verdict, Accepted)
    sizes = [slot.numel for slot in bench.run.layouts[0].slots]
    assert verdict.counters.norms == [2.0 * math.sqrt(size) for size in sizes]
    assert verdict.digest == canonical.digest_of(data)
    assert verdict.path.read_bytes() == data


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run": "run-other"}, "its run is 'run-other'"),
        ({"learner": "bob"}, "its learner is 'bob', expected 'ann'"),
        ({"nonce": "f" * 32}, "its nonce is"),
        ({"fragment": 1}, "its fragment is 1, expected 0"),
        ({"base": 7}, "its base is 7, expected 0"),
        ({"anchor": SAMPLE}, "made against another version 0"),
        ({"precision": "I8"}, "its codec is 'I8', expected"),
        ({"norms": (1.0,)}, "its number of tensors is 1, expected 4"),
        ({"norms": (1.0, 1.0, 1.0, 1.0)}, "its header says 1.0"),
        ({"norms": (None,) * 4}, "its header says None"),
        ({"digest": SAMPLE}, "its data has digest"),
    ],
)
async def test_a_record_that_lies_is_rejected_with_the_reason(
    changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path)
    verdict = await judged(bench, *bench.contribution("ann", bench.run.origin(0), **changes))
    assert isinstance(verdict, Rejected)
    assert verdict.learner == "ann"
    assert reason in verdict.reason


def with_nan(data: bytes) -> bytes:
    start = 8 + int.from_bytes(data[:8], "little")
    return data[:start] + b"\x00\x00\xc0\x7f" + data[start + 4 :]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: b"", "0 bytes cannot hold a header"),
        (lambda data: data[:5], "5 bytes cannot hold a header"),
        (lambda data: data[:100], "cut off after 100"),
        (lambda data: data[:-1], "the header calls for"),
        (lambda data: data + b"\x00", "the header calls for"),
        (lambda data: b"\xff" * 8 + data[8:], "the header claims"),
        (lambda data: b"not a payload at all", "the header claims"),
        (lambda data: data[:-1] + b"\x01", "its data has digest"),
        (with_nan, "its data has digest"),
    ],
)
async def test_bytes_that_are_no_contribution_are_rejected(
    spoil: Any, reason: str, tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path)
    key, data = bench.contribution("ann", bench.run.origin(0))
    verdict = await judged(bench, key, spoil(data))
    assert isinstance(verdict, Rejected)
    assert reason in verdict.reason


async def test_nan_is_rejected_even_where_its_record_is_true(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    key, data = bench.contribution("ann", bench.run.origin(0))
    spoiled = with_nan(data)
    start = 8 + int.from_bytes(spoiled[:8], "little")
    digest = canonical.digest_of(spoiled[start:])
    old = canonical.digest_of(data[start:])
    verdict = await judged(bench, key, spoiled.replace(old.encode(), digest.encode()))
    assert isinstance(verdict, Rejected)
    assert "finite" in verdict.reason


async def test_a_payload_without_a_record_is_rejected(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    key, data = bench.contribution("ann", bench.run.origin(0))
    form = bench.run.algorithm.delta_format(bench.run.layouts[0].numel)
    start = 8 + int.from_bytes(data[:8], "little")
    verdict = await judged(bench, key, form.header(None) + data[start:])
    assert isinstance(verdict, Rejected)
    assert "no contribution record" in verdict.reason


async def test_what_is_rejected_leaves_nothing_in_the_spool(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    key, data = bench.contribution("ann", bench.run.origin(0), digest=SAMPLE)
    assert isinstance(await judged(bench, key, data), Rejected)
    assert not list((tmp_path / "closer").iterdir())


async def test_what_is_gone_gets_no_verdict(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    key, data = bench.contribution("ann", bench.run.origin(0))
    await bench.store.put(key, [data])
    (entry,) = await bench.store.list(key)
    await bench.store.delete([key])
    desk, form = bench.desk(), bench.run.algorithm.delta_format(bench.run.layouts[0].numel)
    intake = Intake(
        store=bench.store,
        spool=desk.spool,
        layout=bench.run.layouts[0],
        payload_format=form,
        offload=inline,
    )
    parsed = keys.parse_mail(key)
    assert parsed is not None
    assert await intake.judge(round_of(bench), parsed, entry) is None
