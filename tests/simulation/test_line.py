import asyncio

import pytest

from gradientmail.errors import StoreFullError, StoreUnavailableError
from gradientmail.simulation.bucket import Bucket
from gradientmail.simulation.line import Line
from gradientmail.simulation.loop import rng_of, run_virtual, wait_until
from gradientmail.simulation.process import ClockError, Process
from gradientmail.simulation.weather import Fault, Weather
from gradientmail.store.base import Created
from gradientmail.testing.stores import PROMISES, keep

SMALL = [promise for promise in PROMISES if "large" not in promise.__name__]


def a_line(fault=None, bucket=None):
    weather = Weather(rates={fault: 1.0} if fault else {})
    bucket = bucket or Bucket(asyncio.get_running_loop().time)
    process = Process("p", ClockError(), rng_of("process"))
    return Line(process, bucket, weather, [], rng_of("line")), bucket, process


@pytest.mark.parametrize("promise", SMALL, ids=lambda promise: promise.__name__)
def test_in_good_weather_it_is_a_store_like_any_other(promise, tmp_path):
    async def main():
        await keep(promise, lambda: a_line()[0], tmp_path)

    run_virtual(main())


@pytest.mark.parametrize(
    ("fault", "applied"),
    [
        (Fault.REFUSED, False),
        (Fault.OUTAGE, False),
        (Fault.STORM, False),
        (Fault.CONFLICT, False),
        (Fault.HIDDEN, True),
        (Fault.LOST, True),
        (Fault.LATE, True),
    ],
)
def test_unknown_means_that_it_may_have_happened_or_may_yet(fault, applied):
    async def main():
        line, bucket, _ = a_line(fault)
        with pytest.raises(StoreUnavailableError):
            await line.create("a", b"mine")
        await wait_until(300.0)
        return bucket.read("a") == b"mine"

    assert run_virtual(main()) is applied


def test_a_repeated_create_finds_itself():
    async def main():
        line, _, _ = a_line(Fault.REPEATED)
        return await line.create("a", b"mine")

    assert run_virtual(main()) is Created.EXISTS


def test_a_full_disk_still_reads_and_deletes_nothing():
    async def main():
        line, bucket, _ = a_line(Fault.FULL)
        bucket.put("other", "a", b"old")
        with pytest.raises(StoreFullError):
            await line.put("b", [b"new"])
        assert await line.read("a") == b"old"
        assert bucket.read("b") is None

    run_virtual(main())


def test_a_stale_read_shows_an_old_value_and_never_hides_a_new_object():
    async def main():
        line, bucket, _ = a_line(Fault.STALE)
        bucket.put("other", "beat", b"1")
        await wait_until(100.0)
        bucket.put("other", "beat", b"2")
        bucket.create("other", "once", b"x")
        seen = {await line.read("beat") for _ in range(20)}
        assert {await line.read("once") for _ in range(20)} == {b"x"}
        return seen

    assert run_virtual(main()) == {b"1", b"2"}


def test_a_damaged_read_is_short_or_has_one_bit_changed():
    async def main(fault):
        line, bucket, _ = a_line(fault)
        bucket.put("other", "a", b"0123456789")
        return [await line.read("a", 2, 8) for _ in range(20)]

    for found in run_virtual(main(Fault.TRUNCATED)):
        assert b"234567".startswith(found)
        assert len(found) < 6
    for found in run_virtual(main(Fault.FLIPPED)):
        changed = [one ^ other for one, other in zip(found, b"234567", strict=True)]
        assert sum(bits.bit_count() for bits in changed) == 1


def test_a_line_counts_what_it_costs():
    async def main():
        line, _, _ = a_line()
        await asyncio.gather(*(line.put(f"a{n}", [bytes(100)]) for n in range(3)))
        await line.read("a0")
        return line.operations, line.most_open, line.most_bytes, line.failed

    assert run_virtual(main()) == (4, 3, 300, 0)


@pytest.mark.parametrize(("when", "applied"), [("before", False), ("after", True)])
def test_a_process_may_die_around_any_operation(when, applied):
    async def main():
        line, bucket, process = a_line()
        line.kill_at = (2, when)
        await line.create("a", b"1")
        task = asyncio.create_task(line.create("b", b"2"))
        process.on_death(task.cancel)
        await asyncio.wait([task])
        await wait_until(10.0)
        return task.cancelled(), bucket.read("b") is not None

    assert run_virtual(main()) == (True, applied)
