"""Bad weather and foreign objects: a clear error or none at all, and nothing is lost."""

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gradientmail as gm
from gradientmail.clock import SystemClock, fresh_nonce, system_random
from gradientmail.closer import daemon
from gradientmail.errors import FormatVersionError, RecordError, StoreFullError
from gradientmail.learner import session
from gradientmail.store.base import Store
from gradientmail.store.retrying import RetryingStore
from gradientmail.store.url import open_client
from gradientmail.testing.faulty import Fault, FaultyStore, healthy, randomly
from tests.e2e.checker import check
from tests.e2e.team import (
    PATIENCE_S,
    Team,
    eventually,
    is_committed,
    make_run,
    objects_of,
    on_store,
    until_seen,
)
from tests.e2e.toy import toy_model


class Weather:
    """What goes wrong between every process here and its store.

    Attributes:
        full: Prefixes under which there is no room.
    """

    def __init__(self) -> None:
        self.full: tuple[str, ...] = ()
        self._stores: list[FaultyStore] = []

    def open_store(self, url: str, **_: object) -> Store:
        """Return a store in this weather; it gives up retrying soon."""
        clock, rng = SystemClock(), system_random()
        faulty = Roomless(open_client(url, clock=clock), self)
        self._stores.append(faulty)
        return RetryingStore(faulty, clock, rng, deadline_s=0.2)

    def turns(self, plan: Any) -> None:
        for store in self._stores:
            store.plan = plan


class Roomless(FaultyStore):
    """A faulty store that is full where the weather says so."""

    def __init__(self, inner: Store, weather: Weather) -> None:
        super().__init__(inner, healthy)
        self._weather = weather

    async def put(self, key: str, buffers: Sequence[bytes | memoryview]) -> None:
        if key.startswith(self._weather.full) and self._weather.full:
            raise StoreFullError(f"no room for {key} by plan")
        await super().put(key, buffers)


@pytest.fixture
def weather(monkeypatch: pytest.MonkeyPatch) -> Weather:
    weather = Weather()
    monkeypatch.setattr(session, "open_store", weather.open_store)
    monkeypatch.setattr(daemon, "open_store", weather.open_store)
    return weather


@pytest.fixture
def url() -> str:
    return f"memory://{fresh_nonce(system_random())}"


def said(caplog: pytest.LogCaptureFixture, reporter: str, words: str) -> bool:
    """Whether a process has logged it."""
    return any(
        record.name == reporter and words in record.getMessage() for record in caplog.records[:]
    )


def finish(team: Team, *learners: Any, closer: Any) -> None:
    for learner in learners:
        learner.result(PATIENCE_S)
    closer.result(PATIENCE_S)


# -- bad weather ----------------------------------------------------------------------------------


def test_a_store_out_of_reach_for_a_while_costs_time_only(
    url: str, weather: Weather, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(url, sync_every=6, stop_after_rounds=12, keep_versions=1000)
    with Team(url) as team:
        ann, bob = team.learner("ann"), team.learner("bob")
        until_seen(url, "ann", "bob")
        closer = team.closer()
        for version in (2, 5):
            eventually(partial(is_committed, url, version))
            caplog.clear()
            weather.turns(lambda operation, key: Fault.NOT_APPLIED)
            for reporter in ("gradientmail.closer", "gradientmail.learner"):
                eventually(partial(said, caplog, reporter, "no definite answer"))
            weather.turns(healthy)
        finish(team, ann, bob, closer=closer)
    (chain,) = check(objects_of(url))
    assert chain.derived == [r["version"] for r in chain.records if not r.get("empty")]
    assert {learner for learner, _ in chain.used} == {"ann", "bob"}


def test_lost_answers_lose_and_double_nothing(url: str, weather: Weather) -> None:
    make_run(url, sync_every=6, stop_after_rounds=12, keep_versions=1000)
    rates = {Fault.NOT_APPLIED: 0.05, Fault.LOSE_ANSWER: 0.05, Fault.APPLY_LATE: 0.05}
    with Team(url) as team:
        ann, bob = team.learner("ann"), team.learner("bob")
        until_seen(url, "ann", "bob")
        closer = team.closer()
        eventually(partial(is_committed, url, 1))
        weather.turns(randomly(random.Random(7), rates))
        eventually(partial(is_committed, url, 10))
        weather.turns(healthy)
        finish(team, ann, bob, closer=closer)
    (chain,) = check(objects_of(url))
    assert chain.derived == [r["version"] for r in chain.records if not r.get("empty")]


def test_a_full_store_loses_nothing_and_the_run_goes_on_once_there_is_room(
    url: str, weather: Weather, caplog: pytest.LogCaptureFixture
) -> None:
    make_run(url, sync_every=6, stop_after_rounds=9, keep_versions=1000)
    with Team(url) as team:
        ann, bob = team.learner("ann"), team.learner("bob")
        until_seen(url, "ann", "bob")
        closer = team.closer()
        for version, prefix, reporter in (
            (2, "fragments/", "gradientmail.closer"),
            (4, "mail/", "gradientmail.learner"),
            (6, "", "gradientmail.closer"),
        ):
            eventually(partial(is_committed, url, version))
            weather.full = (prefix,)
            eventually(partial(said, caplog, reporter, f"no room for {prefix}"))
            weather.full = ()
        finish(team, ann, bob, closer=closer)
    (chain,) = check(objects_of(url))
    assert len(chain.records) == 9
    assert chain.derived == [r["version"] for r in chain.records if not r.get("empty")]


# -- foreign objects ------------------------------------------------------------------------------

FOREIGN = (
    "mail/",
    "mail/0000/",
    "mail/0000/0000000000/",
    "mail/0000/0000000000/eve/notes.txt",
    "mail/0000/0000000001/ann/" + "f" * 32 + ".0001-of-0002.safetensors",
    "mail/0099/0000000000/ann/" + "f" * 32 + ".0000-of-0001.safetensors",
    "commits/",
    "commits/0000/",
    "commits/0000/latest.json",
    "commits/0000/0000000002.json.bak",
    "fragments/",
    "fragments/0000/0000000001/",
    "fragments/0000/0000000001/copy.safetensors",
    "terms/",
    "terms/notes.json",
    "terms/0000000001.json~",
    "learners/",
    "learners/eve.json",
    "learners/eve.txt",
    "swept/",
    "swept/0000/",
    "swept/0000/soon.json",
    "control/",
    "control/pause.json",
    "head.json.bak",
    "README.md",
    ".DS_Store",
)


@pytest.mark.parametrize("body", [b"", b"\x00", b'{"kind":"commit/1"', b"x" * 5000])
def test_foreign_objects_in_every_prefix_are_let_lie(body: bytes, url: str) -> None:
    make_run(url, sync_every=4, stop_after_rounds=6, presence_s=600.0, keep_versions=1)
    store: Any = open_client(url, clock=SystemClock())
    store._objects.update(dict.fromkeys(FOREIGN, body))
    with Team(url) as team:
        finish(team, team.learner("ann"), closer=team.closer())
    objects = objects_of_all(store)
    assert {key: objects[key] for key in FOREIGN} == dict.fromkeys(FOREIGN, body)
    ours = {key: data for key, data in objects.items() if key not in FOREIGN}
    (chain,) = check(ours)
    assert len(chain.records) == 6
    assert not any(record.get("rejected") for record in chain.records)


def objects_of_all(store: Any) -> dict[str, bytes]:
    """Return also what has no key of ours."""
    return dict(store._objects)


@pytest.mark.parametrize("body", [b"", b"\x00", b"{}", b"x" * 5000])
def test_mail_that_is_none_is_rejected_with_the_reason_and_costs_no_round(
    body: bytes, url: str
) -> None:
    make_run(url, sync_every=4, stop_after_rounds=6)
    foreign = f"mail/0000/0000000000/eve/{'e' * 32}.0000-of-0001.safetensors"
    on_store(url, lambda store: store.put(foreign, [body]))
    with Team(url) as team:
        finish(team, team.learner("ann"), closer=team.closer())
    (chain,) = check(objects_of(url))
    named = [one for record in chain.records for one in record.get("rejected", [])]
    assert [one["key"] for one in named] == [foreign]
    assert named[0]["reason"]
    assert {learner for learner, _ in chain.used} == {"ann"}


@pytest.mark.parametrize("body", [b"", b'{"kind":"commit/1"}', b"x" * 5000])
def test_a_commit_that_is_none_stops_everyone_and_names_the_object(body: bytes, url: str) -> None:
    make_run(url, sync_every=4)
    key = "commits/0000/0000000001.json"
    on_store(url, lambda store: store.create(key, body))
    with pytest.raises(RecordError) as by_closer:
        gm.Closer(url).run()
    with pytest.raises(RecordError) as by_learner, gm.Learner(url, toy_model()):
        pass
    assert by_closer.value.key == by_learner.value.key == key
    assert objects_of(url)[key] == body


# -- other versions of the format -----------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 2])
def test_a_run_of_another_format_version_is_refused_by_name_and_untouched(
    number: int, tmp_path: Path
) -> None:
    make_run(tmp_path)
    manifest = tmp_path / "manifest.json"
    other = json.loads(manifest.read_bytes()) | {"kind": f"manifest/{number}"}
    manifest.write_text(json.dumps(other, sort_keys=True, separators=(",", ":")))
    before = objects_of(tmp_path)
    with pytest.raises(FormatVersionError, match=f"manifest/{number}"):
        gm.Closer(str(tmp_path)).run()
    with (
        pytest.raises(FormatVersionError, match=f"manifest/{number}"),
        gm.Learner(str(tmp_path), toy_model()),
    ):
        pass
    assert objects_of(tmp_path) == before


def test_a_newer_field_anywhere_is_no_hindrance(tmp_path: Path) -> None:
    make_run(tmp_path, sync_every=4, stop_after_rounds=4)
    manifest = tmp_path / "manifest.json"
    newer = json.loads(manifest.read_bytes()) | {"invented_later": {"a": 1}}
    manifest.write_text(json.dumps(newer, sort_keys=True, separators=(",", ":")))
    with Team(tmp_path) as team:
        finish(team, team.learner("ann"), closer=team.closer())
    (chain,) = check(objects_of(tmp_path))
    assert len(chain.records) == 4
