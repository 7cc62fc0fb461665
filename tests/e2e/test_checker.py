"""The checker itself: it finds what it is there to find."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.checker import check
from tests.e2e.team import PATIENCE_S, Team, make_run, objects_of

Objects = dict[str, bytes]
FIRST, SECOND = (f"commits/0000/{version:010d}.json" for version in (1, 2))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    url = tmp_path_factory.mktemp("sound")
    make_run(url, sync_every=2, stop_after_rounds=3, keep_versions=1000)
    with Team(url) as team:
        closer = team.closer()
        team.learner("ann").result(PATIENCE_S)
        closer.result(PATIENCE_S)
    objects = objects_of(url)
    assert check(objects)[0].derived == [1, 2, 3]
    return objects


def _rewrite(key: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Objects], object]:
    def rewrite(objects: Objects) -> None:
        record = json.loads(objects[key])
        change(record)
        objects[key] = json.dumps(record).encode()

    return rewrite


def _flip_a_byte(prefix: str) -> Callable[[Objects], object]:
    def flip(objects: Objects) -> None:
        key = next(key for key in sorted(objects) if key.startswith(prefix))
        objects[key] = objects[key][:-1] + bytes([objects[key][-1] ^ 1])

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        lambda objects: objects.pop(SECOND),
        _rewrite(FIRST, lambda record: record.update(closed_at=0.5)),
        _rewrite(SECOND, lambda record: record.update(applied={})),
        _rewrite(SECOND, lambda record: record["participants"][0].update(base=0)),
        _rewrite(SECOND, lambda record: record["participants"][0].update(weight=7.0)),
        _rewrite(SECOND, lambda record: record.update(participants=[])),
        _flip_a_byte("fragments/0000/0000000002"),
        _flip_a_byte("mail/0000/0000000001"),
        lambda objects: objects.pop(
            next(key for key in objects if key.startswith("fragments/0000/0000000003"))
        ),
    ],
)
def test_damage_is_found(damage: Callable[[Objects], object], sound: Objects) -> None:
    objects = dict(sound)
    damage(objects)
    with pytest.raises((AssertionError, KeyError)):
        check(objects)
