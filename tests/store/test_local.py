"""What a disk can do to a store, done to it: races of processes, kills, no room, no rights."""

import asyncio
import errno
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from gradientmail.errors import StoreAccessError, StoreFullError, StoreUnavailableError
from gradientmail.store import local
from gradientmail.store.base import Created
from gradientmail.store.local import LocalStore

PROCESSES = 4
RACES = 40


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _race(root: Path, name: int, start: Barrier, won: Queue) -> None:
    async def creates() -> list[int]:
        store, races = LocalStore(root), []
        for race in range(RACES):
            start.wait()
            if await store.create(f"race/{race}", bytes([name]) * 4096) is Created.CREATED:
                races.append(race)
        return races

    won.put((name, asyncio.run(creates())))


def test_of_many_processes_one_creates_and_its_bytes_are_there(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, queue = context.Barrier(PROCESSES), context.Queue()
    racers = [
        context.Process(target=_race, args=(tmp_path, name, start, queue))
        for name in range(PROCESSES)
    ]
    for racer in racers:
        racer.start()
    won = dict(queue.get() for _ in racers)
    for racer in racers:
        racer.join()
    winners = {race: name for name, races in won.items() for race in races}
    assert Counter(race for races in won.values() for race in races) == Counter(range(RACES))
    for race in range(RACES):
        assert (tmp_path / f"race/{race}").read_bytes() == bytes([winners[race]]) * 4096
    assert _names(tmp_path / "race") == sorted(map(str, range(RACES)))


def test_a_link_whose_answer_was_lost_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS: the server links, the reply is lost, the client asks again and hears EEXIST."""

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    link = os.link
    monkeypatch.setattr(os, "link", link_twice)
    assert asyncio.run(LocalStore(tmp_path).create("a", b"x")) is Created.CREATED
    assert (tmp_path / "a").read_bytes() == b"x"
    assert _names(tmp_path) == ["a"]


def test_every_byte_and_every_name_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    asyncio.run(LocalStore(tmp_path / "run").create("a/b/key", b"x"))
    made, staged, last = synced[:-2], synced[-2], synced[-1]
    assert made == [tmp_path, tmp_path / "run", tmp_path / "run/a"]
    assert staged.parent == tmp_path / "run/a/b"
    assert staged.name.startswith(".")
    assert last == tmp_path / "run/a/b"


_KILLED_HALF_WAY = """
import asyncio, os, signal, sys
from pathlib import Path
from gradientmail.store.local import LocalStore
os.{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
store = LocalStore(Path(sys.argv[1]))
asyncio.run(store.{call})
"""


@pytest.mark.parametrize(
    ("moment", "call"),
    [
        ("fsync", 'create("d/key", b"x" * 100000)'),
        ("link", 'create("d/key", b"x" * 100000)'),
        ("replace", 'put("d/key", [b"x" * 100000])'),
    ],
)
def test_a_kill_leaves_only_a_dot_file_that_no_one_sees(
    moment: str, call: str, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    code = _KILLED_HALF_WAY.format(moment=moment, call=call)
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -9
    [left] = _names(tmp_path / "d")
    assert left.startswith(".")

    async def scenario() -> None:
        store = LocalStore(tmp_path)
        assert await store.list("") == []
        assert await store.read("d/key") is None
        assert await store.create("d/key", b"y") is Created.CREATED
        assert [entry.key for entry in await store.list("")] == ["d/key"]
        await store.delete(["d/key"])
        assert not (tmp_path / "d").exists()  # the dot-file is gone, too

    asyncio.run(scenario())


def test_deleting_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    asyncio.run(LocalStore(tmp_path).delete(["never/was/there"]))


def test_a_delete_leaves_the_dot_file_of_a_living_writer(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(tmp_path)
        await store.create("d/old", b"x")
        with store._staged(tmp_path / "d" / "new", [b"y"]) as staged:
            await store.delete(["d/old"])
            assert staged.exists()

    asyncio.run(scenario())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root and a kernel that lets it")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_leaves_nothing_visible(small_disk: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(small_disk)
        await store.create("small", b"x")
        with pytest.raises(StoreFullError, match="free some space"):
            await store.create("large", bytes(2 << 20))
        with pytest.raises(StoreFullError, match=str(small_disk)):
            await store.put("small", [bytes(2 << 20)])
        assert [entry.key for entry in await store.list("")] == ["small"]
        assert await store.read("small") == b"x"
        assert _names(small_disk) == ["small"]
        assert await store.create("large", bytes(1 << 18)) is Created.CREATED

    asyncio.run(scenario())


def test_a_fetch_onto_a_full_disk_leaves_no_half(small_disk: Path, tmp_path_factory) -> None:
    async def scenario() -> None:
        store = LocalStore(tmp_path_factory.mktemp("store"))
        await store.put("a", [bytes(2 << 20)])
        with pytest.raises(StoreFullError, match="out"):
            await store.fetch("a", small_disk / "out", limit_bytes=2 << 20)
        assert _names(small_disk) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("code", "error", "advice"),
    [
        (errno.EDQUOT, StoreFullError, "free some space"),
        (errno.EACCES, StoreAccessError, "owner and mode"),
        (errno.EROFS, StoreAccessError, "read-only"),
        (errno.EPERM, StoreAccessError, "hard links"),
        (errno.EOPNOTSUPP, StoreAccessError, "hard links"),
        (errno.EIO, StoreUnavailableError, "a/key"),
        (errno.ESTALE, StoreUnavailableError, "a/key"),
        (errno.EMFILE, StoreUnavailableError, "ulimit -n"),
    ],
)
def test_a_refusal_names_the_path_and_what_to_do(
    code: int,
    error: type[Exception],
    advice: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(error, match=advice) as refused:
        asyncio.run(LocalStore(tmp_path).create("a/key", b"x"))
    assert str(tmp_path / "a/key") in str(refused.value)
    assert list((tmp_path / "a").iterdir()) == []


def test_a_file_in_the_way_of_a_directory_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(StoreAccessError, match="a file is where a directory must be"):
        asyncio.run(LocalStore(tmp_path / "run").create("a/key", b"x"))


def test_looking_makes_no_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(tmp_path / "run")
        assert await store.list("") == []
        assert await store.read("a") is None
        await store.delete(["a/b"])

    asyncio.run(scenario())
    assert _names(tmp_path) == []


def test_a_deleted_object_takes_its_empty_directories_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = LocalStore(tmp_path)
        for key in ("mail/1/a/x", "mail/1/b/x", "mail/2/a/x"):
            await store.create(key, b"")
        await store.delete(["mail/1/a/x", "mail/1/b/x"])
        assert _names(tmp_path / "mail") == ["2"]
        await store.delete(["mail/2/a/x"])

    asyncio.run(scenario())
    assert _names(tmp_path) == []


def test_a_directory_taken_while_it_is_needed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep empties and removes a directory just before a learner writes into it."""
    make = local._make_durable
    taken = []

    def make_and_lose(directory: Path) -> None:
        make(directory)
        if not taken:
            directory.rmdir()
            taken.append(directory)

    monkeypatch.setattr(local, "_make_durable", make_and_lose)
    assert asyncio.run(LocalStore(tmp_path).create("a/key", b"x")) is Created.CREATED


def test_listing_walks_only_what_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked = []
    scan = local._scan
    monkeypatch.setattr(local, "_scan", lambda path: walked.append(path.name) or scan(path))

    async def scenario() -> None:
        store = LocalStore(tmp_path)
        for key in ("mail/1/x", "mail/2/x", "mail/3/x", "terms/1"):
            await store.create(key, b"")
        found = await store.list("mail/", after="mail/2/x")
        assert [entry.key for entry in found] == ["mail/3/x"]

    asyncio.run(scenario())
    assert sorted(walked) == ["2", "3", "mail"]
