"""The next version's payloads: made once, uploaded until all are there, nothing left behind."""

from pathlib import Path

import pytest

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.run import Version
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.closer.bench import Bench, make_bench

ANN = frozenset({"ann"})
OUTAGES = 5


async def close(bench: Bench, closer: FragmentCloser, live: frozenset[str] = ANN) -> Version:
    return await bench.while_time_passes(closer.close_next(lambda: live, lambda _: None))


async def held_up(bench: Bench) -> tuple[FaultyStore, FragmentCloser]:
    """Return a closer that has made payloads and whose store took none, and that store."""
    faulty = FaultyStore(bench.store, always("put", Fault.NOT_APPLIED))
    closer = FragmentCloser(bench.desk(store=faulty), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))
    with pytest.raises(StoreUnavailableError):
        await close(bench, closer)
    return faulty, closer


async def payloads(bench: Bench) -> list[str]:
    return [entry.key for entry in await bench.store.list("fragments/0000/")]


def spooled(scratch: Path, role: str = ".safetensors") -> list[str]:
    names = (path.name for path in (scratch / "closer").iterdir())
    return [name for name in names if name.startswith("fragments_") and role in name]


async def test_an_outage_amid_the_uploads_fills_neither_the_spool_nor_the_store(
    tmp_path: Path,
) -> None:
    bench = await make_bench(tmp_path)
    began = await payloads(bench)
    faulty = FaultyStore(bench.store)
    closer = FragmentCloser(bench.desk(store=faulty), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))
    faulty.plan = lambda operation, key: (
        Fault.NOT_APPLIED if operation == "put" and ".params." in key else None
    )
    for _ in range(OUTAGES):
        with pytest.raises(StoreUnavailableError):
            await close(bench, closer)
    uploaded = set(await payloads(bench)) - set(began)
    assert len(uploaded) <= 1  # the outer state
    assert len(spooled(tmp_path, ".params.")) == 2  # the version before, and the next
    puts: list[str] = []

    def note(operation: str, key: str) -> Fault | None:
        puts.extend([key] if operation == "put" else [])
        return None

    faulty.plan = note
    version = await close(bench, closer)
    assert version.outer is not None
    assert {version.params.key, version.outer.key} == set(await payloads(bench)) - set(began)
    assert not uploaded.intersection(puts)


async def test_payloads_are_made_anew_when_more_mail_came_meanwhile(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty, closer = await held_up(bench)
    faulty.plan = healthy
    await bench.post("bob", bench.run.origin(0))
    version = await close(bench, closer, ANN | {"bob"})
    assert version.record is not None
    assert [one.learner for one in version.record.participants] == ["ann", "bob"]
    moved = await bench.params(bench.run.origin(0).params) - await bench.params(version.params)
    assert moved.abs().sum() > 0


async def test_what_a_cleaner_took_before_it_was_uploaded_is_made_anew(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty, closer = await held_up(bench)
    for name in spooled(tmp_path):
        (tmp_path / "closer" / name).unlink()
    faulty.plan = healthy
    assert (await close(bench, closer)).number == 1


async def test_a_full_spool_holds_no_attempts_and_is_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await make_bench(tmp_path)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    await bench.post("ann", bench.run.origin(0))

    def full(*arguments: object) -> None:
        paths = arguments[-1]
        assert isinstance(paths, dict)
        for path in paths.values():
            path.write_bytes(b"half")
        raise StoreFullError("no room by plan")

    with monkeypatch.context() as patch:
        patch.setattr("gradientmail.closer.making.aggregate", full)
        for _ in range(OUTAGES):
            with pytest.raises(StoreFullError):
                await close(bench, closer)
    assert len(spooled(tmp_path, ".params.")) == 1  # of the version before
    assert (await close(bench, closer)).number == 1
