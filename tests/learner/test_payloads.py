"""Parameters of versions: the same bits by whatever way, and damage is found before it is used."""

from pathlib import Path

import pytest
import torch

from gradientmail.learner.payloads import Payloads
from gradientmail.learner.posts import Arrival
from gradientmail.store.metered import Meter, MeteredStore
from tests.closer.bench import make_bench
from tests.learner.test_exchange import Remote


@pytest.mark.parametrize("held", [False, True], ids=["from nothing", "from the version before"])
async def test_one_read_leads_to_the_parameters(*, held: bool, tmp_path: Path) -> None:
    bench = await make_bench(tmp_path, downlink="I8")
    meter = Meter()
    remote = Remote(bench, store=MeteredStore(bench.store, meter))
    origin = bench.run.origin(0)
    before = Arrival(version=origin, params=await bench.params(origin.params))
    version = await remote.commit()
    calls = meter.snapshot().calls
    found, params = await Payloads(remote.desk).newest(version, before if held else None)
    assert found == version
    assert torch.equal(params, await remote.expected(version))
    assert meter.calls - calls == {"read": 1}


async def test_equal_payloads_are_not_read_again(tmp_path: Path) -> None:
    bench = await make_bench(tmp_path)
    remote = Remote(bench)
    origin = bench.run.origin(0)
    held = Arrival(version=origin, params=await bench.params(origin.params))
    empty = await remote.commit(run="run-other")
    await bench.store.delete([empty.params.key])
    _, params = await Payloads(remote.desk).newest(empty, held)
    assert params is held.params
