"""An open run: found from anywhere, read once, and refused where it is no run of ours."""

import json
from pathlib import Path

import pytest

from gradientmail.errors import FormatVersionError, RecordError, RunNotFoundError
from gradientmail.records import keys
from gradientmail.records.head import Head
from gradientmail.run import Run, Version, open_run
from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore
from tests.closer.bench import Bench, make_bench
from tests.closer.test_sweeper import Rounds


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
