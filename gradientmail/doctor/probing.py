"""The long probe: everything a run will ask of a store, tried once and judged."""

import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import xxhash

from gradientmail.clock import Clock, fresh_nonce
from gradientmail.doctor.findings import Complaint, Finding, Verdict
from gradientmail.doctor.processes import race_processes, racers
from gradientmail.doctor.racing import Attempt, broken_promise, race
from gradientmail.doctor.skew import clock_finding
from gradientmail.errors import GradientMailError, StoreAccessError
from gradientmail.store.base import Created, Store
from gradientmail.store.retrying import RetryingStore
from gradientmail.store.url import StoreClient, open_client, split_url

CREATORS = 32
PROCESSES = 4
RACES = 3
LARGE_BYTES = 8 << 20
SMALL_REQUESTS = 8
DEADLINE_S = 30.0

_UNFIT = "this store cannot hold a run; use one with atomic conditional writes"


@dataclass(frozen=True, slots=True)
class Probe:
    """What the checks work with: two clients of one store, and names of their own."""

    url: str
    client: StoreClient
    store: Store
    other: Store
    prefix: str
    clock: Clock
    rng: random.Random

    def key(self, name: str) -> str:
        """Return a key no one else uses."""
        return f"{self.prefix}{name}"


Check = Callable[[Probe], Awaitable[str]]
"""Returns what it saw, or raises ``Complaint``."""


async def probe_store(
    url: str, *, clock: Clock, rng: random.Random, client: StoreClient = "obstore"
) -> Sequence[Finding]:
    """Try out the store at ``url``; leave nothing behind where deleting is allowed.

    Raises:
        SettingsError: the URL is of no known kind.
        StoreAccessError: there are no credentials.
    """
    findings = []
    if finding := await clock_finding(url, clock):
        findings.append(finding)
    async with _probe(url, clock, rng, client) as probe:
        rights = await _judge("rights", _rights, probe)
        findings.append(rights)
        if rights.verdict is not Verdict.FAILED:
            findings += [await _judge(name, check, probe) for name, check in CHECKS.items()]
    return findings


@contextlib.asynccontextmanager
async def _probe(
    url: str, clock: Clock, rng: random.Random, client: StoreClient
) -> AsyncIterator[Probe]:
    store, other = (
        RetryingStore(
            open_client(url, clock=clock, client=client), clock, rng, deadline_s=DEADLINE_S
        )
        for _ in range(2)
    )
    prefix = f".doctor/{fresh_nonce(rng)}/"
    try:
        yield Probe(url, client, store, other, prefix, clock, rng)
    finally:
        await store.close()
        await other.close()


async def _judge(name: str, check: Check, probe: Probe) -> Finding:
    try:
        return Finding(name, Verdict.PASSED, await check(probe))
    except Complaint as complaint:
        return Finding(name, complaint.verdict, complaint.detail, complaint.advice)
    except GradientMailError as error:
        return Finding(name, Verdict.FAILED, str(error))


# -- the checks -----------------------------------------------------------------------------


async def _rights(probe: Probe) -> str:
    key = probe.key("rights")
    tries: dict[str, Callable[[], Awaitable[object]]] = {
        "create": partial(probe.store.create, f"{key}-created", b"x"),
        "overwrite": partial(probe.store.put, key, [b"x"]),
        "read": partial(probe.store.read, key),
        "list": partial(probe.store.list, probe.prefix),
        "delete": partial(probe.store.delete, [key]),
    }
    denied: dict[str, str] = {}
    for name, attempt in tries.items():
        try:
            await attempt()
        except StoreAccessError as error:
            denied[name] = str(error)
    granted = ", ".join(name for name in tries if name not in denied)
    if not denied:
        return f"may {granted}"
    detail = f"may {granted or 'do nothing'}; may not {', '.join(denied)}"
    if denied.keys() == {"delete"}:
        advice = "enough to train and close; what is superfluous is swept by who may delete"
        raise Complaint(detail, advice, Verdict.WARNED)
    raise Complaint(detail, next(iter(denied.values())))


async def _create_once(probe: Probe) -> str:
    key = probe.key("once")
    first = await probe.store.create(key, b"first")
    second = await probe.other.create(key, b"second")
    if first is not Created.CREATED:
        raise Complaint("a create of a new key was refused", _UNFIT)
    if second is not Created.EXISTS:
        raise Complaint("a second create of one key succeeded", _UNFIT)
    if await probe.store.read(key) != b"first":
        raise Complaint("a create that was refused changed the object", _UNFIT)
    return "a second create is refused and changes nothing"


async def _race(probe: Probe) -> str:
    if split_url(probe.url)[0] == "memory":
        key = probe.key("race")
        await _judge_race(probe, key, await race(probe.store, key, CREATORS, probe.rng))
        return f"one of {CREATORS} tasks won; other processes cannot reach memory://"
    async with racers(probe.url, probe.client, processes=PROCESSES, creators=CREATORS) as started:
        for number in range(RACES):
            key = probe.key(f"race-{number}")
            await _judge_race(probe, key, await race_processes(started, key))
    return f"{RACES} x {CREATORS} creators in {PROCESSES} processes: one winner each time"


async def _judge_race(probe: Probe, key: str, attempts: Sequence[Attempt]) -> None:
    if reason := broken_promise(attempts, await probe.store.read(key)):
        raise Complaint(reason, _UNFIT)


async def _visible(probe: Probe) -> str:
    key = probe.key("visible")
    await probe.store.create(key, b"x")
    started_s = probe.clock.now()
    while await probe.other.read(key) is None:
        _give_up_after(probe, started_s, "an acknowledged object cannot be read by another client")
        await probe.clock.sleep(0.1)
    read_s = probe.clock.now() - started_s
    while key not in [entry.key for entry in await probe.other.list(probe.prefix)]:
        _give_up_after(probe, started_s, "an acknowledged object does not appear in the listing")
        await probe.clock.sleep(0.1)
    listed_s = probe.clock.now() - started_s
    return f"read by another client after {read_s:.2f} s, listed after {listed_s:.2f} s"


def _give_up_after(probe: Probe, started_s: float, detail: str) -> None:
    if probe.clock.now() - started_s > DEADLINE_S:
        raise Complaint(f"{detail}, {DEADLINE_S:.0f} s later", _UNFIT)


async def _overwrite(probe: Probe) -> str:
    key = probe.key("overwrite")
    for body in (b"one", b"two"):
        await probe.store.put(key, [body])
        if (seen := await probe.other.read(key)) != body:
            detail = f"another client reads {seen!r} just after {body!r} was written"
            raise Complaint(detail, "a run works, and notices others later", Verdict.WARNED)
    return "an overwritten object is seen at once"


async def _ranges(probe: Probe) -> str:
    key = probe.key("ranges")
    await probe.store.put(key, [b"0123456789"])
    for start, end in ((2, 5), (7, 100), (20, 30)):
        if (seen := await probe.store.read(key, start, end)) != b"0123456789"[start:end]:
            detail = f"bytes {start} to {end} of ten came as {seen!r}"
            raise Complaint(detail, "the server must honour the Range header")
    return "a range of an object comes as asked"


async def _large(probe: Probe) -> str:
    key, body = probe.key("large"), probe.rng.randbytes(LARGE_BYTES)
    started_s = probe.clock.now()
    await probe.store.put(key, [body])
    put_s = probe.clock.now() - started_s
    with tempfile.TemporaryDirectory() as scratch:
        fetched = await probe.store.fetch(key, Path(scratch) / "large", limit_bytes=LARGE_BYTES)
    fetch_s = probe.clock.now() - started_s - put_s
    if fetched is None or fetched.digest != f"xxh3_128:{xxhash.xxh3_128_hexdigest(body)}":
        raise Complaint(f"{LARGE_BYTES} bytes did not come back as they went", _UNFIT)
    up, down = (LARGE_BYTES / 1e6 / max(seconds, 1e-9) for seconds in (put_s, fetch_s))
    return f"{LARGE_BYTES >> 20} MiB: up {up:.1f} MB/s, down {down:.1f} MB/s"


async def _small(probe: Probe) -> str:
    creates_s, reads_s = [], []
    for number in range(SMALL_REQUESTS):
        key = probe.key(f"small-{number}")
        started_s = probe.clock.now()
        await probe.store.create(key, b"x")
        created_s = probe.clock.now()
        await probe.store.read(key)
        creates_s.append(created_s - started_s)
        reads_s.append(probe.clock.now() - created_s)
    create_ms, read_ms = 1e3 * median(creates_s), 1e3 * median(reads_s)
    return f"median of {SMALL_REQUESTS}: create {create_ms:.1f} ms, read {read_ms:.1f} ms"


async def _delete(probe: Probe) -> str:
    left = [entry.key for entry in await probe.store.list(probe.prefix)]
    try:
        await probe.store.delete(left)
    except StoreAccessError as error:
        advice = f"delete {len(left)} objects under {probe.prefix} by hand"
        raise Complaint(str(error), advice, Verdict.WARNED) from error
    if still := await probe.store.list(probe.prefix):
        detail = f"{len(still)} of {len(left)} deleted objects are still listed"
        raise Complaint(detail, "sweeping will be late; nothing else stands on it", Verdict.WARNED)
    return f"the {len(left)} objects of this probe are gone"


CHECKS: dict[str, Check] = {
    "create once": _create_once,
    "race": _race,
    "visibility": _visible,
    "overwrite": _overwrite,
    "ranges": _ranges,
    "throughput": _large,
    "latency": _small,
    "delete": _delete,
}
