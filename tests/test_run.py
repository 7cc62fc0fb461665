"""An open run: found from anywhere, read once, and refused where it is no run of ours."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.errors import FormatVersionError, RecordError, RunNotFoundError
from gradientmail.records import keys
from gradientmail.records.head import Head, Voucher
from gradientmail.run import Run, Version, open_run
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore
from tests.closer.bench import Bench, make_bench
from tests.closer.test_sweeper import Rounds

ANN = frozenset({"ann"})


async def grown(bench: Bench, versions: int) -> list[Version]:
    """Return the versions of a run after some rounds."""
    rounds = Rounds(bench)
    return [bench.run.origin(0), *[await rounds.close() for _ in range(versions)]]


async def test_where_there_is_no_run_it_says_how_to_make_one() -> None:
    with pytest.raises(RunNotFoundError, match="gradientmail init"):
        await open_run(MemoryStore())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"kind":"stop/1"}'])
async def test_a_manifest_that_is_none_is_damage(body: bytes) -> None:
    store = MemoryStore()
    await store.create(keys.MANIFEST, body)
    with pytest.raises(RecordError) as raised:
        await open_run(store)
    assert raised.value.key == keys.MANIFEST


@pytest.mark.parametrize("number", [0, 2, 99])
async def test_another_format_version_is_refused_by_name(number: int, tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    data = await bench.store.read(keys.MANIFEST)
    assert data is not None
    store = MemoryStore()
    changed = json.loads(data) | {"kind": f"manifest/{number}"}
    body = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
    await store.create(keys.MANIFEST, body)
    with pytest.raises(FormatVersionError, match=rf"manifest/{number}.*use the version"):
        await open_run(store)


async def test_a_newer_field_is_no_hindrance(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    data = await bench.store.read(keys.MANIFEST)
    assert data is not None
    store = MemoryStore()
    changed = json.loads(data) | {"invented_later": 7}
    body = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
    await store.create(keys.MANIFEST, body)
    assert (await open_run(store)).manifest == bench.run.manifest


async def test_version_0_is_the_manifests_and_later_ones_are_commits(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    origin, first, second = await grown(bench, 2)
    assert (origin.number, origin.digest, origin.record) == (0, bench.run.digest, None)
    assert (origin.outer, origin.update, origin.applied) == (None, None, {})
    assert first.record is not None
    assert first.record.parent == bench.run.digest
    assert await bench.run.version(0, 0) == origin
    assert await bench.run.version(0, 2) == second
    assert await bench.run.version(0, 3) is None
    assert second.applied == {"ann": 1}


@pytest.mark.parametrize("hint", [0, 1, 3, 5, 6, 1_000_000])
async def test_the_newest_is_found_from_any_hint(hint: int, tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    versions = await grown(bench, 5)
    assert await bench.run.newest(0, hint) == versions[-1]


@pytest.mark.parametrize("told", [(5,), (3,), (), (9, 9), (1_000_000,)])
async def test_the_newest_of_all_is_found_whatever_the_head_says(
    told: tuple[int, ...], tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path)
    versions = await grown(bench, 5)
    head = Head(run=bench.run.name, term=1, closer="c", versions=told)
    await bench.run.mailbox.put_head(head)
    assert await bench.run.newest_of_all() == [versions[-1]]


async def test_joining_costs_as_much_after_many_versions_as_after_few(tmp_path: Path) -> None:
    costs = []
    for versions in (3, 12):
        bench = await make_bench(tmp_path / str(versions))
        await grown(bench, versions)
        head = Head(run=bench.run.name, term=1, closer="c", versions=(versions,))
        await bench.run.mailbox.put_head(head)
        meter = Meter()
        run: Run = await open_run(MeteredStore(bench.store, meter))
        await run.told_of_all()
        costs.append(dict(meter.calls))
    assert costs == [{"read": 4}] * 2  # the manifest twice, the head, and the commit


@pytest.mark.parametrize(
    ("told", "number"), [((5,), 5), ((3,), 3), ((), 5), ((0,), 5), ((6,), 5), ((1_000_000, 9), 5)]
)
async def test_what_the_head_tells_is_believed_where_there_is_a_commit(
    told: tuple[int, ...], number: int, tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path)
    await grown(bench, 5)
    await bench.run.mailbox.put_head(Head(run=bench.run.name, term=1, closer="c", versions=told))
    assert [version.number for version in await bench.run.told_of_all()] == [number]


# -- what one commit vouches for ------------------------------------------------------------------


def stood(version: Version, **changes: Any) -> Version:
    """Return what is known of a version by another fragment's commit."""
    return dataclasses.replace(version, record=None, **changes)


async def vouched(bench: Bench) -> tuple[list[Version], Head]:
    """Return where three fragments stand and the head that tells of it; the last one vouches."""
    closers = [FragmentCloser(bench.desk(), bench.run.origin(p)) for p in range(2)]
    others = list(closers)
    closers.append(
        FragmentCloser(
            bench.desk(),
            bench.run.origin(2),
            lambda: tuple(one.present.standing for one in others),
        )
    )
    for closer in (closers[0], *closers):
        await bench.post("ann", closer.present)
        await bench.while_time_passes(closer.close_next(lambda: ANN, lambda _: None))
    head = Head(
        run=bench.run.name, term=1, closer="c", versions=(2, 1, 1), voucher=closers[2].voucher
    )
    return [closer.present for closer in closers], head


async def test_one_commit_proves_where_every_fragment_stands(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=3)
    standing, head = await vouched(bench)
    await bench.run.mailbox.put_head(head)
    meter = Meter()
    run = await open_run(MeteredStore(bench.store, meter))
    found = await run.vouched_of_all()
    assert found == [stood(standing[0]), stood(standing[1]), standing[2]]
    assert dict(meter.calls) == {"read": 4}  # the manifest twice, the head, and the commit


async def test_what_the_head_tells_to_be_newer_is_read_for_itself(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=3)
    standing, head = await vouched(bench)
    closer = FragmentCloser(bench.desk(), standing[0])
    await bench.post("ann", standing[0])
    newer = await bench.while_time_passes(closer.close_next(lambda: ANN, lambda _: None))
    await bench.run.mailbox.put_head(replace(head, versions=(3, 1, 1)))
    assert await bench.run.vouched_of_all() == [newer, stood(standing[1]), standing[2]]


def another_version(voucher: Voucher) -> Voucher:
    first, second = voucher.beside
    return Voucher(voucher.fragment, voucher.version, (replace(first, version=1), second))


def other_bytes(voucher: Voucher) -> Voucher:
    first, second = voucher.beside
    forged = replace(first, params=replace(first.params, key="fragments/evil"))
    return Voucher(voucher.fragment, voucher.version, (forged, second))


def another_anchor(voucher: Voucher) -> Voucher:
    first, second = voucher.beside
    return Voucher(
        voucher.fragment, voucher.version, (replace(first, digest=second.digest), second)
    )


FORGERIES = [
    another_version,
    other_bytes,
    another_anchor,
    lambda voucher: Voucher(voucher.fragment, voucher.version, voucher.beside[:1]),
    lambda voucher: Voucher(voucher.fragment, voucher.version, ()),
    lambda voucher: Voucher(0, 2, voucher.beside),
    lambda voucher: Voucher(2, 9, voucher.beside),
    lambda voucher: Voucher(77, 1, voucher.beside),
]


@pytest.mark.parametrize("forge", FORGERIES)
async def test_where_no_commit_proves_it_a_voucher_is_worth_nothing(
    forge: Callable[[Voucher], Voucher], tmp_path: Path
) -> None:
    bench = await make_bench(tmp_path, fragments=3)
    standing, head = await vouched(bench)
    assert head.voucher is not None
    await bench.run.mailbox.put_head(replace(head, voucher=forge(head.voucher)))
    assert await bench.run.vouched_of_all() == standing


async def test_without_a_head_all_are_about_as_far_as_the_last(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, fragments=3)
    standing, _ = await vouched(bench)
    run = bench.run
    for find in (run.newest_of_all, run.told_of_all, run.vouched_of_all):
        assert await find() == standing
