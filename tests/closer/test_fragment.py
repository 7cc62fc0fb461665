"""The rounds of one fragment: what is committed, what is adopted, what is kept and dropped."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.errors import RecordError, StoreFullError, StoreUnavailableError
from gradientmail.protocol.pace import CLAIM_GROWTH, LONGEST_STEP_S, USUAL_STEP_S
from gradientmail.protocol.polling import CLOSER_POLLS
from gradientmail.records import canonical, keys
from gradientmail.records.commit import RoundRecord
from gradientmail.run import Version
from gradientmail.store.base import Created
from gradientmail.testing.faulty import Fault, FaultyStore, once
from tests.closer.bench import EVERYONE, POLL_S, Bench, make_bench, running

SEEN_S = CLOSER_POLLS * POLL_S
"""However late: so often a closer looks while somebody is live."""


def closer_of(bench: Bench, name: str = "closer", **over: Any) -> FragmentCloser:
    return FragmentCloser(bench.desk(name, **over), bench.run.origin(0))


async def close(bench: Bench, closer: FragmentCloser, live: frozenset[str] = EVERYONE) -> Version:
    """Close the open round, given that ``live`` are live."""
    return await bench.while_time_passes(closer.close_next(lambda: live, lambda _: None))


def record_of(version: Version) -> RoundRecord:
    assert version.record is not None
    return version.record


def payloads(version: Version) -> tuple[str, str | None]:
    return version.params.digest, version.outer.digest if version.outer else None


# -- a round ----------------------------------------------------------------------------------


async def test_a_round_takes_the_outer_step_and_says_what_it_was_made_of(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, outer="sgd", outer_lr=0.5)
    origin = bench.run.origin(0)
    posted = [await bench.post("bob", origin, fill=3.0), await bench.post("ann", origin, fill=1.0)]
    version = await close(bench, closer_of(bench))
    moved = await bench.params(origin.params) - await bench.params(version.params)
    assert torch.allclose(moved, bench.delta(0, 1.0), atol=1e-6)
    record = record_of(version)
    assert [p.key for p in record.participants] == [posted[1], posted[0]]
    assert record.applied == {"ann": 0, "bob": 0}
    assert record.parent == bench.run.digest
    assert (record.empty, record.rejected, record.cosine) == (False, (), pytest.approx(1.0))
    assert record.estimates.step_s == 0.5
    assert await bench.run.version(0, 1) == version


async def test_no_single_learners_claim_decides_how_long_a_step_takes(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    for learner, step_s in (("ann", 1e11), ("bob", 0.5)):
        await bench.post(learner, bench.run.origin(0), step_s=step_s)
    version = await close(bench, closer_of(bench))
    assert version.estimates.step_s == 0.5


async def test_the_claim_of_who_is_alone_is_believed_within_limits(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    closer, ann = closer_of(bench), frozenset({"ann"})
    await bench.post("ann", closer.present, step_s=1e11)
    assert (await close(bench, closer, ann)).estimates.step_s == LONGEST_STEP_S
    await bench.post("ann", closer.present, step_s=1e11)
    growth = 0.9 + 0.1 * CLAIM_GROWTH
    assert (await close(bench, closer, ann)).estimates.step_s == LONGEST_STEP_S * growth
    bench = await make_bench(tmp_path)
    closer = closer_of(bench)
    known_s = (1e-300, 0.1 * USUAL_STEP_S, 0.19 * USUAL_STEP_S)  # and 60 s each time after
    for claim, average in zip((1e-300, 1e11, 1e11), known_s, strict=True):
        await bench.post("ann", closer.present, step_s=claim)
        version = await close(bench, closer, ann)
        assert version.estimates.step_s == pytest.approx(average)


async def test_a_round_waits_for_every_live_learner(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    await bench.post("ann", bench.run.origin(0))
    async with running(closer_of(bench).close_next(lambda: EVERYONE, lambda _: None)) as closing:
        await bench.clock.advance(1000.0)
        assert not closing.done()
        await bench.post("bob", bench.run.origin(0))
        await bench.clock.advance(SEEN_S)
        assert {p.learner for p in record_of(closing.result()).participants} == EVERYONE


async def test_the_grace_window_is_called_and_then_over(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, grace_s=10.0)
    called: list[int] = []
    await bench.post("ann", bench.run.origin(0))
    async with running(closer_of(bench).close_next(lambda: EVERYONE, called.append)) as closing:
        await bench.clock.advance(9.5)
        assert set(called) == {0}
        assert not closing.done()
        await bench.clock.advance(0.5)
        assert [p.learner for p in record_of(closing.result()).participants] == ["ann"]


async def test_one_learners_bad_mail_costs_the_others_nothing(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    good = await bench.post("ann", bench.run.origin(0))
    bad = await bench.post("bob", bench.run.origin(0), run="run-other")
    record = record_of(await close(bench, closer_of(bench)))
    assert [p.key for p in record.participants] == [good]
    assert [(r.key, r.reason) for r in record.rejected] == [
        (bad, f"its run is 'run-other', expected {bench.run.name!r}")
    ]


async def test_contributions_weigh_by_their_samples_and_not_without_any(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, weights="samples", outer="sgd", outer_lr=1.0)
    origin = bench.run.origin(0)
    await bench.post("ann", origin, fill=1.0, tokens=900, samples=1)
    await bench.post("bob", origin, fill=5.0, tokens=10, samples=3)
    uncounted = await bench.post("cid", origin, fill=100.0)
    version = await close(bench, closer_of(bench))
    moved = await bench.params(origin.params) - await bench.params(version.params)
    assert torch.allclose(moved, bench.delta(0, 4.0), atol=1e-6)
    record = record_of(version)
    assert [(p.samples, p.weight) for p in record.participants] == [(1, 1.0), (3, 3.0)]
    ((key, reason),) = [(r.key, r.reason) for r in record.rejected]
    assert (key, "weighs by samples" in reason) == (uncounted, True)


async def test_foreign_objects_among_the_mail_are_let_lie(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    foreign = [
        "mail/0000/notes.txt",
        "mail/0000/0000000000/ann/x.safetensors",
        "mail/0000/0000000000/a.b/" + "0" * 32 + ".0000-of-0001.safetensors",
        keys.mail(0, 5, "ann", "0" * 32),
    ]
    for key in foreign:
        await bench.store.put(key, [b""])
    for learner in EVERYONE:
        await bench.post(learner, bench.run.origin(0))
    record = record_of(await close(bench, closer_of(bench)))
    assert (len(record.participants), record.rejected) == (2, ())
    assert {key: await bench.store.read(key) for key in foreign} == dict.fromkeys(foreign, b"")


async def test_when_nothing_counts_an_empty_round_keeps_the_payloads(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    closer = closer_of(bench)
    for learner in EVERYONE:
        await bench.post(learner, bench.run.origin(0))
    first = await close(bench, closer)
    await bench.post("ann", first, digest="xxh3_128:" + "0" * 32)
    second = await close(bench, closer, frozenset({"ann"}))
    assert record_of(second).empty
    assert (second.params, second.outer) == (first.params, first.outer)
    assert record_of(second).update is None
    assert record_of(second).applied == record_of(first).applied
    await bench.post("ann", second)
    third = await close(bench, closer, frozenset({"ann"}))
    assert not record_of(third).empty


# -- who counts, and how often -----------------------------------------------------------------


async def test_twins_under_one_name_count_once_by_the_longer_one(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    await bench.post("ann", bench.run.origin(0), steps=3)
    longest = await bench.post("ann", bench.run.origin(0), steps=5)
    await bench.post("ann", bench.run.origin(0), steps=4)
    record = record_of(await close(bench, closer_of(bench), frozenset({"ann"})))
    assert [p.key for p in record.participants] == [longest]


async def test_what_is_applied_is_never_used_again(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, max_staleness=3)
    closer = closer_of(bench)
    await bench.post("ann", bench.run.origin(0))
    first = await close(bench, closer, frozenset({"ann"}))
    await bench.post("ann", bench.run.origin(0), steps=9)  # a twin, or a retry, after the fact
    await bench.post("bob", first)
    second = await close(bench, closer, frozenset({"bob"}))
    assert [(p.learner, p.base) for p in record_of(second).participants] == [("bob", 1)]
    assert record_of(second).applied == {"ann": 0, "bob": 1}


async def test_late_mail_counts_within_max_staleness_and_not_beyond(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, max_staleness=1, grace_s=0.0)
    closer, origin = closer_of(bench), bench.run.origin(0)
    await bench.post("ann", origin)
    first = await close(bench, closer)
    late = await bench.post("bob", origin)
    too_late = bench.contribution("cyd", origin)
    await bench.post("ann", first)
    second = await close(bench, closer, frozenset({"ann", "bob"}))
    assert late in {p.key for p in record_of(second).participants}
    await bench.store.put(too_late[0], [too_late[1]])
    await bench.post("ann", second)
    third = await close(bench, closer, frozenset({"ann"}))
    assert [p.learner for p in record_of(third).participants] == ["ann"]


async def test_what_came_too_late_for_one_round_is_carried_into_the_next(tmp_path: Path) -> None:
    """Bob's mail is there before round 0 closes, but the decision was taken without it."""
    bench = await make_bench(tmp_path, max_staleness=1)
    closer, origin = closer_of(bench), bench.run.origin(0)
    await bench.post("ann", origin)
    async with running(closer.close_next(lambda: frozenset({"ann"}), lambda _: None)) as closing:
        await bench.clock.advance(1.0)
        first = closing.result()
    await bench.post("bob", origin)
    second = await close(bench, closer, frozenset({"bob"}))
    assert [(p.learner, p.base) for p in record_of(second).participants] == [("bob", 0)]
    assert second.number == first.number + 1


async def test_mail_rejected_in_one_round_is_not_an_answer_in_the_next(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, max_staleness=2)
    closer = closer_of(bench)
    await bench.post("ann", bench.run.origin(0), run="run-other")
    first = await close(bench, closer, frozenset({"ann"}))
    assert record_of(first).empty
    async with running(closer.close_next(lambda: frozenset({"ann"}), lambda _: None)) as closing:
        await bench.clock.advance(1000.0)
        assert not closing.done()
        await bench.post("ann", first)
        await bench.clock.advance(SEEN_S)
        second = record_of(closing.result())
    assert [p.learner for p in second.participants] == ["ann"]
    assert second.rejected == ()


# -- several closers ---------------------------------------------------------------------------


async def test_of_two_closers_that_race_the_loser_adopts(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    for learner in EVERYONE:
        await bench.post(learner, bench.run.origin(0))
    closers = [closer_of(bench, "one"), closer_of(bench, "two")]
    one, two = await asyncio.gather(*(close(bench, closer) for closer in closers))
    assert one == two
    assert [closer.present for closer in closers] == [one, one]


async def test_a_commit_that_is_not_visible_yet_is_waited_for(tmp_path: Path) -> None:
    """``create`` said EXISTS, and a read may still say that there is nothing."""

    class Blind(FaultyStore):
        async def read(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
            return None if key == keys.commit(0, 1) else await super().read(key, start, end)

    bench = await make_bench(tmp_path)
    for learner in EVERYONE:
        await bench.post(learner, bench.run.origin(0))
    await close(bench, closer_of(bench, "one"))
    loser = closer_of(bench, "two", store=Blind(bench.store))
    with pytest.raises(StoreUnavailableError, match="not visible yet"):
        await close(bench, loser)


async def test_a_commit_of_another_chain_is_not_adopted(tmp_path: Path) -> None:
    bench, other = await make_bench(tmp_path / "here"), await make_bench(tmp_path / "there")
    await other.post("ann", other.run.origin(0))
    record = record_of(await close(other, closer_of(other, "one"), frozenset({"ann"})))
    await bench.run.mailbox.create_commit(replace(record, parent=f"xxh3_128:{'0' * 32}"))
    with pytest.raises(RecordError, match="its parent is another version"):
        await close(bench, closer_of(bench, "one"))


async def test_any_closer_gets_the_same_bits(tmp_path: Path) -> None:
    """Each in a store of its own, so that both really aggregate."""
    results = []
    for name in ("one", "two"):
        bench = await make_bench(
            tmp_path / name, uplink="I8", downlink="I4", merge="radial-directional-mean"
        )
        for fill, learner in enumerate(sorted(EVERYONE), start=1):
            await bench.post(learner, bench.run.origin(0), fill=float(fill))
        closer = closer_of(bench, name)
        first = await close(bench, closer)
        for fill, learner in enumerate(sorted(EVERYONE), start=3):
            await bench.post(learner, first, fill=float(fill))
        second = await close(bench, closer)
        results.append([payloads(first), payloads(second)])
    assert results[0] == results[1]


async def test_a_takeover_in_the_middle_of_collecting_never_hangs(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    stopped, other = closer_of(bench, "stopped"), closer_of(bench, "other")
    await bench.post("ann", bench.run.origin(0))
    async with running(stopped.close_next(lambda: EVERYONE, lambda _: None)) as collecting:
        await bench.clock.advance(5.0)
        assert not collecting.done()
        committed = await close(bench, other, frozenset({"ann"}))
        await bench.clock.advance(SEEN_S)
        assert collecting.result() == committed
    await bench.post("bob", committed)
    assert await close(bench, stopped, frozenset({"bob"})) == await close(bench, other)


async def test_a_closer_that_lost_its_memory_goes_on_from_the_same_bytes(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, max_staleness=1)
    kept = closer_of(bench, "kept")
    await bench.post("ann", bench.run.origin(0))
    first = await close(bench, kept, frozenset({"ann"}))
    late = await bench.post("bob", bench.run.origin(0))
    fresh = FragmentCloser(bench.desk("fresh"), await bench.run.newest(0))
    assert fresh.present == first
    await bench.post("ann", first)
    second = await close(bench, fresh)
    assert late in {p.key for p in record_of(second).participants}
    assert await close(bench, kept) == second


async def test_a_commit_whose_answer_was_lost_is_found_to_be_ours(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    faulty = FaultyStore(bench.store, once("create", Fault.LOSE_ANSWER))
    closer = closer_of(bench, store=faulty)
    for learner in EVERYONE:
        await bench.post(learner, bench.run.origin(0))
    with pytest.raises(StoreUnavailableError):
        await close(bench, closer)
    first = await close(bench, closer)  # as the daemon does: again
    assert first.number == 1
    assert {p.learner for p in record_of(first).participants} == EVERYONE


# -- damage ------------------------------------------------------------------------------------


async def test_a_damaged_payload_stops_the_closer_and_names_the_object(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    key = bench.run.origin(0).params.key
    await bench.store.put(key, [b"something else"])
    await bench.post("ann", bench.run.origin(0))
    with pytest.raises(RecordError, match="differs from its record's digest") as raised:
        await close(bench, closer_of(bench), frozenset({"ann"}))
    assert raised.value.key == key


async def test_contributions_whose_mean_cannot_be_published_are_rejected_together(
    tmp_path: Path,
) -> None:
    """Each is finite, but F16 ends at 65504: the round goes on without them."""
    bench = await make_bench(tmp_path, published="F16")
    closer = closer_of(bench)
    posted = [await bench.post(name, bench.run.origin(0), fill=1e6) for name in sorted(EVERYONE)]
    first = record_of(await close(bench, closer))
    assert first.empty
    assert [rejection.key for rejection in first.rejected] == posted
    assert "above the largest, 6.55e+04" in first.rejected[0].reason
    await bench.post("ann", closer.present)
    second = record_of(await close(bench, closer, frozenset({"ann"})))
    assert not second.empty


async def test_a_full_store_loses_nothing_and_the_round_closes_once_there_is_room(
    tmp_path: Path,
) -> None:
    class Full(FaultyStore):
        full = True

        async def put(self, key: str, buffers: Any) -> None:
            if self.full and key.startswith("fragments/"):
                raise StoreFullError("no room by plan")
            await super().put(key, buffers)

    bench = await make_bench(tmp_path)
    store = Full(bench.store)
    closer = closer_of(bench, store=store)
    await bench.post("ann", bench.run.origin(0))
    with pytest.raises(StoreFullError):
        await close(bench, closer, frozenset({"ann"}))
    assert await bench.run.version(0, 1) is None
    store.full = False
    assert (await close(bench, closer, frozenset({"ann"}))).number == 1


async def test_the_spool_holds_only_what_the_next_round_may_need(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    closers = [closer_of(bench, "one"), closer_of(bench, "two")]
    for _ in range(3):
        base = closers[0].present
        for learner in EVERYONE:
            await bench.post(learner, base)
        await asyncio.gather(*(close(bench, closer) for closer in closers))
    present = closers[0].present
    assert present.outer is not None
    needed = {key.replace("/", "_") for key in (present.params.key, present.outer.key)}
    for name in ("one", "two"):
        assert {path.name for path in (tmp_path / name).iterdir()} <= needed


async def test_created_is_only_ever_said_once(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    await bench.post("ann", bench.run.origin(0))
    version = await close(bench, closer_of(bench), frozenset({"ann"}))
    again = await bench.store.create(keys.commit(0, 1), canonical.encode(record_of(version)))
    assert again is Created.EXISTS
