"""Signs of life, and who else gives them under the same name."""

from pathlib import Path

import pytest

from gradientmail.store.metered import Meter, MeteredStore
from tests.closer.bench import make_bench
from tests.learner.test_exchange import PRESENCE_S, joined, work

BEAT_S = PRESENCE_S / 4


async def test_a_twin_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = await make_bench(tmp_path, presence_s=PRESENCE_S)
    async with joined(bench) as remote:
        for count in range(20):
            await bench.show("ann", count=count)
            work(remote)
            await remote.pass_time(BEAT_S)
    assert caplog.text.count("another process trains under our name") == 1


async def test_the_first_beat_reads_no_presence_for_there_is_nothing_to_compare(
    tmp_path: Path,
) -> None:
    bench = await make_bench(tmp_path, presence_s=PRESENCE_S)
    meter = Meter()
    async with joined(bench, store=MeteredStore(bench.store, meter)) as remote:
        before = meter.snapshot()
        await remote.pass_time(0.0)
        assert meter.calls - before.calls == {"read": 1, "put": 1}  # stop.json; our presence
