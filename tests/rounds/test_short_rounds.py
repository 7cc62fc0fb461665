"""A round with fewer contributions than its rule needs: empty, and nothing is lost."""

from pathlib import Path

from gradientmail.closer.fragment import FragmentCloser
from gradientmail.operations.verifying import verify_run
from gradientmail.protocol.recovery import Fate, Posted, fate
from gradientmail.run import Version
from tests.closer.bench import Bench, inline, make_bench

FIVE = ("ann", "bob", "cid", "dan", "eve")


async def close(bench: Bench, closer: FragmentCloser, *live: str) -> Version:
    closing = closer.close_next(lambda: frozenset(live), lambda _: None)
    return await bench.while_time_passes(closing)


async def test_it_says_what_is_missing_and_keeps_the_payloads(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, merge="krum", quorum=5)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    origin = closer.present
    keys = [await bench.post(name, origin) for name in FIVE[:2]]
    record = (await close(bench, closer, *FIVE[:2])).record
    assert record is not None
    assert (record.empty, record.params, record.participants) == (True, origin.params, ())
    assert record.missing == "Krum needs 5 contributions, and there are 2"
    assert (record.rejected, record.applied, record.outer_steps) == ((), {}, 0)
    posted = Posted(key=keys[0], base=0)
    assert fate("ann", posted, [record], max_staleness=0) is Fate.DROPPED, "to the residual"
    assert (await verify_run(bench.store, tmp_path / "v", offload=inline)).faults == ()


async def test_it_is_short_too_where_the_guard_leaves_fewer_than_the_rule_needs(
    tmp_path: Path,
) -> None:
    trimmed = {"merge": "trimmed-mean", "quorum": 3, "max_staleness": 1, "guard": "suppress"}
    bench = await make_bench(tmp_path, **trimmed)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    for name, fill in (("ann", 1.0), ("bob", 2.0), ("liar", -1.0)):
        await bench.post(name, closer.present, fill=fill)
    short = await close(bench, closer, "ann", "bob", "liar")
    assert short.record is not None
    assert (short.record.empty, short.record.participants) == (True, ())
    assert short.record.missing == (
        "TrimmedMean needs 3 contributions, and there are 2: the guard left out 1"
    )
    assert (short.record.rejected, short.record.applied) == ((), {})
    await bench.post("cid", short, fill=3.0)
    record = (await close(bench, closer, "ann", "bob", "liar", "cid")).record
    assert record is not None
    assert [(used.learner, used.suppressed) for used in record.participants] == [
        ("ann", False),
        ("bob", False),
        ("cid", False),
        ("liar", True),
    ]
    assert (await verify_run(bench.store, tmp_path / "v", offload=inline)).faults == ()


async def test_what_came_counts_in_a_later_round_where_staleness_lets_it(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, merge="krum", quorum=5, max_staleness=1)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    for name in FIVE[:2]:
        await bench.post(name, closer.present)
    short = await close(bench, closer, *FIVE[:2])
    for name in FIVE[2:]:
        await bench.post(name, short)
    record = (await close(bench, closer, *FIVE)).record
    assert record is not None
    assert [(used.learner, used.base) for used in record.participants] == [
        ("ann", 0),
        ("bob", 0),
        ("cid", 1),
        ("dan", 1),
        ("eve", 1),
    ]
    assert record.outer_steps == 1
    assert (await verify_run(bench.store, tmp_path / "v", offload=inline)).faults == ()
