import asyncio
from pathlib import Path

from gradientmail.store.memory import MemoryStore
from gradientmail.store.metered import Meter, MeteredStore


def test_calls_are_counted_by_name_and_bytes_each_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        meter = Meter()
        store = MeteredStore(MemoryStore(), meter)
        await store.create("a", b"12345")
        await store.put("b", [b"12", memoryview(b"345678")])
        assert (meter.up_bytes, meter.down_bytes) == (13, 0)
        await store.read("a", 1, 3)
        await store.read("missing")
        await store.fetch("b", tmp_path / "out", limit_bytes=8)
        await store.fetch("missing", tmp_path / "out", limit_bytes=8)
        assert (meter.up_bytes, meter.down_bytes) == (13, 10)
        await store.list("")
        await store.delete(["a"])
        assert meter.calls == {
            "create": 1,
            "put": 1,
            "read": 2,
            "fetch": 2,
            "list": 1,
            "delete": 1,
        }

    asyncio.run(scenario())


def test_a_snapshot_stays_while_the_meter_goes_on() -> None:
    async def scenario() -> None:
        meter = Meter()
        store = MeteredStore(MemoryStore(), meter)
        await store.create("a", b"12345")
        before = meter.snapshot()
        await store.create("b", b"1")
        assert (before.requests, before.up_bytes) == (1, 5)
        assert (meter.requests, meter.up_bytes) == (2, 6)

    asyncio.run(scenario())
