"""Both S3 clients against a real server, and against a wire that loses answers."""

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest

from gradientmail.clock import SystemClock, fresh_nonce, system_random
from gradientmail.errors import StoreAccessError, StoreUnavailableError
from gradientmail.store import s3
from gradientmail.store.base import Created, Store
from gradientmail.store.buckets import FIRST_BYTES, PART_BYTES, BucketPrefix
from gradientmail.store.retrying import RetryingStore
from gradientmail.store.s3 import ObjectStore
from gradientmail.store.url import StoreClient, open_client
from gradientmail.testing.proxy import (
    PIECES,
    FaultProxy,
    Message,
    Wire,
    creates,
    fault_proxy,
    first,
)
from gradientmail.testing.servers import S3Server

Scenario = Callable[[Store], Awaitable[None]]


@pytest.fixture(params=["obstore", "s3fs"])
def client(request: pytest.FixtureRequest) -> StoreClient:
    return request.param


@pytest.fixture
def proxy(
    seaweedfs_server: S3Server, seaweedfs_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """The way to SeaweedFS, for whatever is opened at ``seaweedfs_url``."""
    with fault_proxy(seaweedfs_server) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.server.endpoint)
        yield proxy


def run(url: str, client: StoreClient, scenario: Scenario) -> None:
    async def closing() -> None:
        store = open_client(url, clock=SystemClock(), client=client)
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(closing())


# -- lost answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "fault"),
    [
        ("obstore", Wire.DROP_REQUEST),
        ("obstore", Wire.DROP_ANSWER),
        ("obstore", Wire.UNAVAILABLE_AFTER),
        ("obstore", Wire.CONFLICT),
        ("s3fs", Wire.UNAVAILABLE_AFTER),
        ("s3fs", Wire.CONFLICT),
    ],
)
def test_a_create_without_a_clear_answer_is_unknown_and_made_once(
    client: StoreClient, fault: Wire, proxy: FaultProxy, seaweedfs_url: str
) -> None:
    async def scenario(store: Store) -> None:
        proxy.plan = first(1, creates, fault)
        with pytest.raises(StoreUnavailableError):
            await store.create("a", b"mine")
        assert len([request for request in proxy.requests if creates(request)]) == 1

    run(seaweedfs_url, client, scenario)


@pytest.mark.parametrize("fault", [Wire.DROP_ANSWER, Wire.UNAVAILABLE_AFTER, Wire.CONFLICT])
def test_a_create_that_won_and_lost_its_answers_is_ours(
    fault: Wire, proxy: FaultProxy, seaweedfs_url: str, client: StoreClient
) -> None:
    async def scenario(store: Store) -> None:
        retrying = RetryingStore(store, SystemClock(), random.Random(5))
        proxy.plan = first(2, creates, fault)
        assert await retrying.create("a", b"mine") is Created.CREATED
        assert await retrying.create("a", b"theirs") is Created.EXISTS
        assert await store.read("a") == b"mine"

    run(seaweedfs_url, client, scenario)


def test_a_chain_over_a_bad_wire_has_exactly_the_acknowledged_records(
    proxy: FaultProxy, seaweedfs_url: str, client: StoreClient
) -> None:
    rng = random.Random(3)
    faults = [Wire.DROP_ANSWER, Wire.UNAVAILABLE_AFTER, Wire.DROP_REQUEST, Wire.CONFLICT]
    met: Counter[Wire] = Counter()

    def plan(request: Message) -> Wire | None:
        if not creates(request) or rng.random() > 0.4:
            return None
        fault = rng.choice(faults)
        met[fault] += 1
        return fault

    async def append(store: Store, name: int) -> set[bytes]:
        won: set[bytes] = set()
        link = 0
        while len(won) < 8:
            key, body = f"chain/{link:06d}", f"{name} {link}".encode()
            if await store.read(key) is None and await store.create(key, body) is Created.CREATED:
                won.add(body)
            link += 1
        return won

    async def scenario(store: Store) -> None:
        retrying = RetryingStore(store, SystemClock(), rng)
        proxy.plan = plan
        acknowledged = set().union(*await asyncio.gather(*(append(retrying, n) for n in range(3))))
        stored = {await store.read(entry.key) for entry in await store.list("chain/")}
        assert stored == acknowledged
        assert len(stored) == 24
        assert set(met) == set(faults)

    run(seaweedfs_url, client, scenario)


# -- large objects --------------------------------------------------------------------------


def test_a_large_object_travels_in_equal_parts_without_conditions(
    proxy: FaultProxy, seaweedfs_url: str, client: StoreClient, tmp_path: Path
) -> None:
    size_bytes = 2 * PART_BYTES + 1000

    async def scenario(store: Store) -> None:
        await store.put("large", [bytes(1000), bytes(2 * PART_BYTES)])
        assert not any(map(creates, proxy.requests))
        sent = [len(r.body) for r in proxy.requests if "partNumber=" in r.first]
        assert sorted(sent) == [1000, PART_BYTES, PART_BYTES]
        assert await store.fetch("large", tmp_path / "out", limit_bytes=size_bytes) is not None

    run(seaweedfs_url, client, scenario)
    gets = [r.headers for r in proxy.requests if r.first.startswith("GET")]
    assert ["range" in headers for headers in gets] == [True] * 3
    assert ["if-match" in headers for headers in gets] == [False, True, True]


def gets(proxy: FaultProxy) -> list[tuple[str, bool]]:
    """Return the range that each GET asked for, and whether it asked for one object's alone."""
    found = [r.headers for r in proxy.requests if r.first.startswith("GET")]
    return [(headers.get("range", ""), "if-match" in headers) for headers in found]


def test_a_read_of_little_is_one_request(
    proxy: FaultProxy, seaweedfs_url: str, client: StoreClient
) -> None:
    """Whatever it might have been: who reads a record does not know its size."""

    async def scenario(store: Store) -> None:
        await store.put("small", [bytes(FIRST_BYTES)])
        for end in (None, 32 << 20, FIRST_BYTES):
            proxy.requests.clear()
            assert await store.read("small", 0, end) == bytes(FIRST_BYTES)
            assert gets(proxy) == [(f"bytes=0-{FIRST_BYTES - 1}", False)]
        proxy.requests.clear()
        assert await store.read("small", 7, 9) == bytes(2)
        assert gets(proxy) == [("bytes=7-8", False)]

    run(seaweedfs_url, client, scenario)


def test_a_read_of_much_comes_in_parts_of_one_object(
    proxy: FaultProxy, seaweedfs_url: str, client: StoreClient
) -> None:
    body = random.Random(5).randbytes(FIRST_BYTES + PART_BYTES + 1000)
    second = FIRST_BYTES + PART_BYTES

    async def scenario(store: Store) -> None:
        await store.put("large", [body])
        for end in (None, len(body) + 1):
            proxy.requests.clear()
            assert await store.read("large", 0, end) == body
            assert gets(proxy)[0] == (f"bytes=0-{FIRST_BYTES - 1}", False)
            assert sorted(gets(proxy)[1:]) == [
                (f"bytes={FIRST_BYTES}-{second - 1}", True),
                (f"bytes={second}-{len(body) - 1}", True),
            ]
        assert await store.read("large", 7, second) == body[7:second]

    run(seaweedfs_url, client, scenario)


def test_a_read_may_take_its_time_as_long_as_bytes_go_on_coming(
    proxy: FaultProxy, seaweedfs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow line is the usual case: the whole of an answer takes longer than a silence may."""
    silence_s = 4
    monkeypatch.setitem(s3._QUICK, "client_options", s3._patient(silence_s))
    monkeypatch.setitem(s3._BULK, "client_options", s3._patient(silence_s))
    body = random.Random(5).randbytes(FIRST_BYTES + 1000)

    async def scenario(store: Store) -> None:
        await store.put("large", [body])
        proxy.delay_s = 1.5 * silence_s / PIECES
        proxy.plan = lambda _: Wire.TRICKLE_ANSWER
        assert await store.read("large") == body
        assert len(gets(proxy)) == 2, "neither was sent again"

    run(seaweedfs_url, "obstore", scenario)


def test_a_part_of_a_read_that_breaks_off_goes_on_where_it_was(
    proxy: FaultProxy, seaweedfs_url: str
) -> None:
    body = random.Random(5).randbytes(FIRST_BYTES + PART_BYTES)

    async def scenario(store: Store) -> None:
        await store.put("large", [body])
        proxy.plan = first(1, lambda request: "if-match" in request.headers, Wire.CUT_ANSWER)
        assert await store.read("large") == body

    run(seaweedfs_url, "obstore", scenario)


def test_a_put_that_breaks_off_leaves_nothing_visible(
    proxy: FaultProxy, seaweedfs_url: str, client: StoreClient
) -> None:
    async def scenario(store: Store) -> None:
        proxy.plan = lambda request: (
            Wire.UNAVAILABLE_BEFORE if request.first.startswith("POST") else None
        )
        with pytest.raises(StoreUnavailableError):
            await store.put("large", [bytes(PART_BYTES + 1)])
        assert await store.list("") == []
        assert await store.read("large") is None

    run(seaweedfs_url, client, scenario)


# -- foreign objects ------------------------------------------------------------------------


def test_foreign_objects_do_not_break_a_listing(
    seaweedfs_server: S3Server, seaweedfs_url: str, client: StoreClient
) -> None:
    prefix = seaweedfs_url.rpartition("/")[2]
    console = boto3.client("s3", endpoint_url=seaweedfs_server.endpoint)
    for name in ("mail/", "mail/sub/", "mail/a b", "mail/\xe4.txt"):
        console.put_object(Bucket=seaweedfs_server.bucket, Key=f"{prefix}/{name}")

    async def scenario(store: Store) -> None:
        await store.create("mail/own", b"x")
        assert "mail/own" in [entry.key for entry in await store.list("mail/")]
        assert "mail/own" in [entry.key for entry in await store.list("")]
        await store.delete(["mail/own"])

    run(seaweedfs_url, client, scenario)


def test_a_name_that_the_client_cannot_hold_is_a_clear_refusal(
    moto_server: S3Server, moto_url: str
) -> None:
    console = boto3.client("s3", endpoint_url=moto_server.endpoint)
    prefix = moto_url.rpartition("/")[2]
    console.put_object(Bucket=moto_server.bucket, Key=f"{prefix}/mail//x")

    async def scenario(store: Store) -> None:
        with pytest.raises(StoreAccessError, match=r"foreign object.*mail//x"):
            await store.list("mail/")

    run(moto_url, "obstore", scenario)


def test_google_and_azure_fail_on_a_missing_key_and_we_do_not(tmp_path: Path) -> None:
    """obstore's own disk client answers as theirs do."""
    disk = obstore.store.LocalStore(tmp_path)
    with pytest.raises(FileNotFoundError):
        obstore.delete(disk, ["missing"])

    async def scenario() -> None:
        store = ObjectStore(disk, disk, BucketPrefix("gs", "bucket", "run/"))
        await store.create("a", b"x")
        await store.create("b", b"x")
        await store.delete(["missing", "a", "gone", "b"])
        assert await store.list("") == []

    asyncio.run(scenario())


# -- the library's threads ------------------------------------------------------------------


async def test_a_store_is_closed_once_the_library_has_left_python(
    moto_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of its runtime that is still there when the interpreter ends aborts the process."""
    may_leave = threading.Event()

    class Waited(SystemClock):
        async def sleep(self, seconds: float) -> None:
            may_leave.set()
            await super().sleep(seconds)

    loop = asyncio.get_running_loop()
    tell = loop.call_soon_threadsafe

    def tell_and_stay(*told: Any, **context: Any) -> asyncio.Handle:
        handle = tell(*told, **context)
        may_leave.wait()
        return handle

    store = open_client(moto_url, clock=SystemClock())
    with monkeypatch.context() as patch:
        patch.setattr(s3, "SystemClock", Waited)
        patch.setattr(loop, "call_soon_threadsafe", tell_and_stay)
        try:
            assert await store.read("missing") is None
            await store.close()
            assert may_leave.is_set()
        finally:
            may_leave.set()


# -- refusals -------------------------------------------------------------------------------


def operations(store: Store, scratch: Path) -> list[Awaitable[object]]:
    return [
        store.create("a", b"x"),
        store.put("a", [b"x"]),
        store.read("a"),
        store.fetch("a", scratch / "out", limit_bytes=1),
        store.list(""),
        store.delete(["a"]),
    ]


def test_a_missing_bucket_is_named(
    seaweedfs_url: str, client: StoreClient, tmp_path: Path
) -> None:
    async def scenario(store: Store) -> None:
        for operation in operations(store, tmp_path):
            with pytest.raises(StoreAccessError, match=r"s3://no-such-bucket/run.*create the buc"):
                await operation

    run("s3://no-such-bucket/run", client, scenario)


def test_a_wrong_secret_is_a_refusal_that_shows_no_secret(
    seaweedfs_url: str, client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")

    async def scenario(store: Store) -> None:
        for operation in operations(store, tmp_path):
            with pytest.raises(StoreAccessError, match="AWS_SECRET_ACCESS_KEY") as refused:
                await operation
            assert "not-the-secret" not in str(refused.value)

    run(seaweedfs_url, client, scenario)


def test_a_server_that_is_not_there_is_unknown(
    seaweedfs_url: str, client: StoreClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")

    async def scenario(store: Store) -> None:
        for operation in operations(store, tmp_path):
            with pytest.raises(StoreUnavailableError, match=r"(?i)connect"):
                await operation

    run(seaweedfs_url, client, scenario)


def test_credentials_that_expire_are_read_anew(
    proxy: FaultProxy, seaweedfs_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s3fs keeps its session until a server calls its token expired."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")

    async def scenario(store: Store) -> None:
        with pytest.raises(StoreAccessError):
            await store.read("a")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", proxy.upstream.access_key_id)
        proxy.plan = first(1, lambda _: True, Wire.TOKEN_EXPIRED)
        with pytest.raises(StoreUnavailableError):
            await store.read("a")
        assert await store.read("a") is None

    run(f"{seaweedfs_url}-{fresh_nonce(system_random())}", "s3fs", scenario)
