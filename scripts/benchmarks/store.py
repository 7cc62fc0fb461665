"""Each store, as a run opens it (retrying and metered), against its client library alone.

Small objects of 1 KB, 20 in turn; a large one; a listing of 1,000 keys. The stores' fetches hash
what they write, and their files are as durable as the plain ones. Memory of an upload is measured
in a process of its own: what it needs above the object, which is there already.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import raw
from benchmarks.frame import (
    ROOT,
    ChildError,
    Figure,
    Options,
    Result,
    Size,
    Skipped,
    at_most,
    compared,
    in_child,
    interleaved,
    peak_memory,
    ratio,
)
from gradientmail.clock import SystemClock, system_random
from gradientmail.store.base import Store
from gradientmail.store.url import StoreClient, open_store
from gradientmail.testing.servers import S3Server, ServerStartError, moto, seaweedfs

SMALL = os.urandom(1000)
IN_TURN = 20
LARGE_BYTES = {"tiny": 1 << 20, "quick": 16 << 20, "full": 64 << 20}
KEYS = {"tiny": 50, "quick": 300, "full": 1000}
UPLOAD_BYTES = 256 << 20

Starts = Callable[[Path], AbstractContextManager[S3Server]]
SERVERS: dict[Size, Sequence[tuple[Starts, Sequence[StoreClient]]]] = {
    "tiny": (),
    "quick": ((seaweedfs, ("obstore",)),),
    "full": ((seaweedfs, ("obstore", "s3fs")), (moto, ("obstore",))),
}

Act = Callable[[], Coroutine[Any, Any, object]]


@dataclass(frozen=True)
class Case:
    """One store beside its client, on one server."""

    what: str
    store: Store
    client: raw.Client


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="gradientmail-bench-", dir=_disk()) as scratch:
        yield from _local(Path(scratch), options)
        for start, clients in SERVERS[options.size]:
            name = start.__name__
            try:
                with start(Path(scratch, name)) as server, server.exported():
                    for client in clients:
                        yield from _s3(name, server, client, options)
            except ServerStartError as error:
                yield Skipped(what=name, reason=str(error).partition("\n")[0])


def _disk() -> Path:
    """Return a folder on the disk of the checkout: the system's temporary one may be memory."""
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _local(scratch: Path, options: Options) -> Iterator[Result]:
    ours, plain = scratch / "ours", scratch / "plain"
    case = Case("local", _opened(str(ours)), raw.Files(plain))
    yield from _compared(case, scratch, options)


def _s3(name: str, server: S3Server, client: StoreClient, options: Options) -> Iterator[Result]:
    alone: raw.Client = raw.Obstore(server) if client == "obstore" else raw.S3fs(server)
    what = f"{name}, {client}"
    url = f"s3://{server.bucket}/ours-{client}"
    with tempfile.TemporaryDirectory(dir=_disk()) as scratch:
        yield from _compared(Case(what, _opened(url, client), alone), Path(scratch), options)
    if name != "seaweedfs" or options.size != "full":
        return
    try:
        found = in_child("benchmarks.store:upload_memory", url, client, UPLOAD_BYTES)
    except ChildError as error:
        yield Skipped(what=f"{what}: memory of an upload", reason=str(error))
        return
    yield Figure(
        what=f"{what}: memory of an upload of {UPLOAD_BYTES >> 20} MB, above it",
        value=found["above_bytes"] / UPLOAD_BYTES,
        unit="x the object",
        target=at_most(0.5),
        note=f"{found['above_bytes'] / 1e6:.0f} MB",
    )


def _opened(url: str, client: StoreClient = "obstore") -> Store:
    return open_store(url, clock=SystemClock(), rng=system_random(), client=client)


# -- side by side ---------------------------------------------------------------------------


def _compared(case: Case, scratch: Path, options: Options) -> Iterator[Result]:
    """Yield store against client for each operation."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        numbers = count()
        large = os.urandom(1 << 20) * (LARGE_BYTES[options.size] >> 20)
        megabytes = len(large) >> 20
        runner.run(_prepare(case, KEYS[options.size], large))
        pairs = {
            f"create 1 KB, {IN_TURN} in turn": _creates(case, numbers),
            f"put 1 KB, {IN_TURN} in turn": _puts(case, numbers),
            f"read 1 KB, {IN_TURN} in turn": _reads(case),
            f"put {megabytes} MB": _put(case, large),
            f"fetch {megabytes} MB": _fetch(case, scratch),
            f"list {KEYS[options.size]} keys": (
                lambda: case.store.list("many/"),
                lambda: case.client.list("many"),
            ),
        }
        for what, (ours, alone) in pairs.items():
            acts: dict[str, Callable[[], object]] = {
                "alone": lambda act=alone: runner.run(act()),  # type: ignore[misc]
                "ours": lambda act=ours: runner.run(act()),  # type: ignore[misc]
            }
            samples = interleaved(acts, times=3 * options.repetitions)  # their spread is large
            found = ratio(samples["ours"], samples["alone"])
            cpu = ratio(samples["ours"], samples["alone"], by="cpu")
            yield compared(
                f"{case.what}: {what}",
                found,
                "x the client",
                samples["ours"],
                target=at_most(1.1),
                note=f"in CPU {cpu.median:.2f} x",
            )
        runner.run(case.store.close())


async def _prepare(case: Case, keys: int, large: bytes) -> None:
    seats = asyncio.Semaphore(16)

    async def both(key: str, data: bytes) -> None:
        async with seats:
            await case.store.put(key, [data])
            await case.client.put(key, data)

    many = [f"many/{index:06d}" for index in range(keys)]
    await asyncio.gather(*(both(key, SMALL) for key in (*many, "small/one")))
    await both("large/one", large)


def _creates(case: Case, numbers: Iterator[int]) -> tuple[Act, Act]:
    async def ours() -> None:
        for _ in range(IN_TURN):
            await case.store.create(f"small/{next(numbers)}", SMALL)

    async def alone() -> None:
        for _ in range(IN_TURN):
            await case.client.create(f"small/{next(numbers)}", SMALL)

    return ours, alone


def _puts(case: Case, numbers: Iterator[int]) -> tuple[Act, Act]:
    async def ours() -> None:
        for _ in range(IN_TURN):
            await case.store.put(f"small/{next(numbers)}", [SMALL])

    async def alone() -> None:
        for _ in range(IN_TURN):
            await case.client.put(f"small/{next(numbers)}", SMALL)

    return ours, alone


def _reads(case: Case) -> tuple[Act, Act]:
    async def ours() -> None:
        for _ in range(IN_TURN):
            await case.store.read("small/one")

    async def alone() -> None:
        for _ in range(IN_TURN):
            await case.client.read("small/one")

    return ours, alone


def _put(case: Case, large: bytes) -> tuple[Act, Act]:
    view = memoryview(large)
    return (
        lambda: case.store.put("large/one", [view]),
        lambda: case.client.put("large/one", large),
    )


def _fetch(case: Case, scratch: Path) -> tuple[Act, Act]:
    limit_bytes = 1 << 30
    return (
        lambda: case.store.fetch("large/one", scratch / "fetched", limit_bytes=limit_bytes),
        lambda: case.client.fetch("large/one", scratch / "fetched-alone"),
    )


# -- in a process of its own ----------------------------------------------------------------


def upload_memory(url: str, client: StoreClient, size_bytes: int) -> dict[str, int]:
    """Upload an object that is in memory already; return the peak above it."""

    async def upload() -> int:
        store = _opened(url, client)
        await store.put("warm", [SMALL])  # what the client needs anyway
        data = bytearray(os.urandom(1 << 20) * (size_bytes >> 20))
        with peak_memory() as memory:
            await store.put("memory", [memoryview(data)])
        await store.close()
        return memory.above_start_bytes

    return {"above_bytes": asyncio.run(upload())}
