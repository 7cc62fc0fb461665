"""Whatever is posted, it gets its one right outcome, within bounds, and the round goes on."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from gradientmail.closer.fragment import MAX_REJECTIONS, FragmentCloser
from gradientmail.closer.intake import Accepted, Rejected
from gradientmail.codecs.precision import Precision
from gradientmail.records import canonical
from gradientmail.records.commit import RoundRecord
from gradientmail.run import Version
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.clock import turn
from gradientmail.testing.forging import Forger, Outcome, Specimen
from gradientmail.testing.hostile import hostile_mail
from tests.closer.bench import Bench, make_bench
from tests.closer.test_intake import judged

CODECS = [*Precision]
HONEST = frozenset({"ann"})


async def post(bench: Bench, specimens: Iterable[Specimen]) -> dict[str, Specimen]:
    posted = {}
    for specimen in specimens:
        await bench.store.put(specimen.key, [specimen.body()])
        posted[specimen.key] = specimen
    return posted


async def close(bench: Bench) -> RoundRecord:
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    closing = closer.close_next(lambda: HONEST, lambda _: None)
    version: Version = await bench.while_time_passes(closing)
    assert version.record is not None
    return version.record


def outcomes(record: RoundRecord, keys: Iterable[str]) -> dict[str, tuple[Outcome, str]]:
    rejected = {one.key: one.reason for one in record.rejected}
    accepted = {one.key for one in record.participants}
    return {
        key: (Outcome.REJECTED, rejected[key])
        if key in rejected
        else (Outcome.ACCEPTED if key in accepted else Outcome.IGNORED, "")
        for key in keys
    }


# -- a whole round ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
async def test_each_specimen_has_its_outcome_and_the_round_closes_with_the_honest_rest(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradientmail.closer.fragment.MAX_REJECTIONS", 1000)
    monkeypatch.setattr("gradientmail.testing.hostile.BOMB_TENSORS", 10_000)
    bench = await make_bench(tmp_path, uplink=codec)
    posted = await post(bench, hostile_mail(bench.run, bench.run.origin(0)))
    assert len(posted) >= 64
    honest = await bench.post("ann", bench.run.origin(0))

    record = await close(bench)

    found = outcomes(record, posted)
    wrong = {
        posted[key].name: (outcome, reason)
        for key, (outcome, reason) in found.items()
        if outcome is not posted[key].outcome or not re.search(posted[key].reason, reason)
    }
    assert not wrong
    assert honest in {one.key for one in record.participants}
    assert all(one.reason.isprintable() for one in record.rejected)
    assert canonical.decode(RoundRecord, "commit", canonical.encode(record)) == record


async def test_the_corpus_is_the_same_each_time(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    first, second = (list(hostile_mail(bench.run, bench.run.origin(0))) for _ in range(2))
    assert [one.name for one in first] == [one.name for one in second]
    assert len({one.key for one in first}) == len({one.name for one in first}) == len(first)
    bodies = [
        (one, other) for one, other in zip(first, second, strict=True) if "bomb" not in one.name
    ]
    assert all(one.body() == other.body() for one, other in bodies)


async def test_a_flood_of_bad_mail_is_named_up_to_a_limit(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    forger = Forger(bench.run, bench.run.origin(0))
    await post(bench, (forger.letter(f"{n}", "short", whole=lambda data: b"") for n in range(300)))
    await bench.post("ann", bench.run.origin(0))
    record = await close(bench)
    assert [one.learner for one in record.participants] == ["ann"]
    assert len(record.rejected) == MAX_REJECTIONS


# -- bounds -------------------------------------------------------------------------------------


class Watched(MemoryStore):
    """Notes what is read and fetched, and how much of it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int, int | None]] = []
        self.fetches: list[str] = []
        self.at_once = self.most_at_once = 0

    async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        self.reads.append((key, start, end))
        self.at_once += key.startswith("mail/")
        self.most_at_once = max(self.most_at_once, self.at_once)
        await turn()
        self.at_once -= key.startswith("mail/")
        return await super().read(key, start, end)

    async def fetch(self, key: str, path: Path, *, limit_bytes: int):
        self.fetches.append(key)
        return await super().fetch(key, path, limit_bytes=limit_bytes)


async def test_the_84_megabyte_header_bomb_is_judged_by_one_bounded_read(tmp_path: Path) -> None:
    store = Watched()
    bench = await make_bench(tmp_path, store=store)
    corpus = hostile_mail(bench.run, bench.run.origin(0))
    bomb = next(one for one in corpus if one.name == "header bomb")
    body = bomb.body()
    assert len(body) > 80_000_000
    verdict = await judged(bench, bomb.key, body)
    assert isinstance(verdict, Rejected)
    assert re.search(bomb.reason, verdict.reason)
    ((_, start, end),) = [read for read in store.reads if read[0] == bomb.key]
    assert (start, end) == (0, bench.run.algorithm.delta_format(8192).max_header_bytes)
    assert end is not None
    assert end < 300_000
    assert store.fetches == []


async def test_a_flood_is_judged_a_few_objects_at_a_time(tmp_path: Path) -> None:
    store = Watched()
    bench = await make_bench(tmp_path, store=store)
    forger = Forger(bench.run, bench.run.origin(0))
    await post(bench, (forger.letter(f"{n}", "short", whole=lambda data: b"") for n in range(300)))
    await bench.post("ann", bench.run.origin(0))
    await close(bench)
    assert store.most_at_once <= 16


async def test_a_file_cut_anywhere_is_rejected(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, uplink="I4")
    forger = Forger(bench.run, bench.run.origin(0))
    good = forger.letter("good")
    body = good.body()
    for cut in range(len(body)):
        verdict = await judged(bench, good.key, body[:cut])
        assert isinstance(verdict, Rejected), cut
    assert isinstance(await judged(bench, good.key, body), Accepted)


# -- what changes under our eyes ----------------------------------------------------------------


async def test_an_object_overwritten_while_it_is_judged_is_rejected(tmp_path: Path) -> None:
    """Else a commit would say of a contribution what its bytes do not."""

    class Swapping(MemoryStore):
        other = b""

        async def fetch(self, key: str, path: Path, *, limit_bytes: int):
            await self.put(key, [self.other])
            return await super().fetch(key, path, limit_bytes=limit_bytes)

    store = Swapping()
    bench = await make_bench(tmp_path, store=store)
    key, body = bench.contribution("ann", bench.run.origin(0))
    store.other = body.replace(b'\\"tokens\\":40', b'\\"tokens\\":99')
    assert store.other != body
    verdict = await judged(bench, key, body)
    assert isinstance(verdict, Rejected)
    assert verdict.reason == "it was overwritten while it was judged"
