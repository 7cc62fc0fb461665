"""A run without a closer, from outside: what is exported of it, and what can be verified."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from gradientmail.algorithm import FAST
from gradientmail.codecs.layout import chunks
from gradientmail.codecs.streaming import BufferTarget, PayloadWriter
from gradientmail.errors import RecordError, SettingsError
from gradientmail.operations.exporting import Exported, export_run
from gradientmail.operations.gossiping import UNRECORDED
from gradientmail.operations.verified import NotDerived, Verified
from gradientmail.operations.verifying import verify_run
from gradientmail.records import canonical, keys
from gradientmail.records.contribution import ContributionRecord
from gradientmail.run import open_run
from gradientmail.store.memory import MemoryStore
from tests.closer.bench import inline
from tests.operations.models import create

KEEP = 2
"""Rounds of which each learner keeps what it posted; so many it may be behind."""


async def begun(**settings: Any) -> MemoryStore:
    """Return a run of one number, which is 7.0, whose learners mix without a closer."""
    store, model = MemoryStore(), nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 7.0)
    await create(store, model, **{"exchange": "gossip", "keep_versions": KEEP, **settings})
    return store


async def post(
    store: MemoryStore, learner: str, version: int, value: float, /, **changes: Any
) -> str:
    """Post ``value`` as a learner does; ``changes`` are to its record."""
    run = await open_run(store)
    layout = run.layouts[0]
    form, target = run.algorithm.gossip_format(layout.numel), BufferTarget()
    writer, vector = PayloadWriter(form, target, header=b""), torch.zeros(layout.numel)
    vector[0] = value
    for start, stop in chunks(0, layout.numel):
        writer.write(FAST, start, vector[start:stop])
    fields: dict[str, Any] = {
        "run": run.name,
        "learner": learner,
        "incarnation": "1" * 32,
        "fragment": 0,
        "base": version - 1,
        "anchor": run.digest,
        "steps": 1,
        "tokens": 1,
        "step_s": 0.5,
        "final": False,
        "precision": "F32",
        "norms": (),
        "digest": canonical.digest_of(memoryview(target.data)),
        "nonce": "2" * 32,
        **changes,
    }
    header = form.header(canonical.encode(ContributionRecord(**fields)).decode())
    key = keys.gossip(0, version, learner)
    await store.put(key, [header, memoryview(target.data)])
    return key


async def damage(store: MemoryStore, key: str) -> None:
    data = bytearray(await store.read(key) or b"")
    data[-1] ^= 1
    await store.put(key, [bytes(data)])


async def exported(store: MemoryStore, out: Path, **asked: Any) -> tuple[Exported, float]:
    """Export; return what is said of it, and the number that was written."""
    said = await export_run(store, out, **asked)
    return said, float(load_file(out)["weight"])


async def verified(store: MemoryStore, scratch: Path) -> Verified:
    return await verify_run(store, scratch, offload=inline)


# -- exporting ----------------------------------------------------------------------------------


async def test_before_anyone_posted_it_is_what_the_run_began_with(tmp_path: Path) -> None:
    assert await exported(await begun(), tmp_path / "out") == (Exported((0,)), 7.0)


async def test_it_is_the_mean_of_each_learners_newest_post(tmp_path: Path) -> None:
    store, out = await begun(), tmp_path / "out"
    for learner, version, value in [("ann", 4, 1.0), ("ann", 5, 2.0), ("bob", 4, 6.0)]:
        await post(store, learner, version, value)
    assert await exported(store, out) == (Exported((5,), ("ann", "bob")), 4.0)
    with safe_open(out, "pt") as file:
        assert file.metadata()["learners"] == "ann,bob"


@pytest.mark.parametrize(("newest", "mean"), [(3 + KEEP, 2.0), (4 + KEEP, 3.0)])
async def test_who_was_left_behind_does_not_count(
    newest: int, mean: float, tmp_path: Path
) -> None:
    store = await begun()
    await post(store, "gone", 3, 1.0)
    await post(store, "ann", newest, 3.0)
    assert (await exported(store, tmp_path / "out"))[1] == mean


async def test_a_learner_or_a_round_can_be_asked_for(tmp_path: Path) -> None:
    store, out = await begun(), tmp_path / "out"
    for learner, version, value in [("ann", 4, 1.0), ("ann", 5, 2.0), ("bob", 4, 6.0)]:
        await post(store, learner, version, value)
    assert await exported(store, out, learner="bob") == (Exported((4,), ("bob",)), 6.0)
    assert await exported(store, out, version=4) == (Exported((4,), ("ann", "bob")), 3.5)
    assert (await exported(store, out, learner="ann", version=4))[1] == 1.0


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"learner": "eve"}, "no post of 'eve' is kept; there are those of ann, for versions 4"),
        ({"version": 9}, "no post for version 9 is kept; there are those of ann, for versions 4"),
    ],
)
async def test_what_nobody_posted_is_refused_by_what_there_is(
    asked: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    store = await begun()
    await post(store, "ann", 4, 1.0)
    with pytest.raises(SettingsError, match=re.escape(reason)):
        await export_run(store, tmp_path / "out", **asked)


async def test_a_run_with_a_closer_has_no_learners_model(tmp_path: Path) -> None:
    store = await begun(exchange="closer")
    with pytest.raises(SettingsError, match="leave out the learner"):
        await export_run(store, tmp_path / "out", learner="ann")


async def test_a_damaged_post_is_never_exported(tmp_path: Path) -> None:
    store = await begun()
    await damage(store, await post(store, "ann", 4, 1.0))
    with pytest.raises(RecordError, match="differs from its record's digest"):
        await export_run(store, tmp_path / "out")


# -- verifying ----------------------------------------------------------------------------------


async def test_each_post_is_verified_by_itself_and_no_round_is_derived(tmp_path: Path) -> None:
    store = await begun()
    for version in (4, 5):
        await post(store, "ann", version, 1.0)
    found = await verified(store, tmp_path)
    (fragment,) = found.fragments
    assert (found.faults, fragment.version, fragment.payloads) == ((), 5, 3)
    assert fragment.not_derived == (NotDerived(first=1, last=5, reason=UNRECORDED),)


async def test_what_is_wrong_with_a_post_is_named(tmp_path: Path) -> None:
    store = await begun()
    await post(store, "ann", 4, 1.0)
    flipped = await post(store, "bob", 4, 1.0)
    await damage(store, flipped)
    taken = await post(store, "cid", 4, 1.0, learner="ann")
    found = await verified(store, tmp_path)
    assert [(fault.key, fault.reason) for fault in found.faults] == [
        (flipped, "its data differs from its record's digest"),
        (taken, "it is of another run, fragment, round or learner"),
    ]
    assert found.fragments[0].payloads == 2
