"""A sound run is derived again whole; whatever is changed in it is found and named."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gradientmail.clock import fresh_nonce
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.operations.verified import Verified
from gradientmail.operations.verifying import verify_run
from gradientmail.records import canonical, keys
from gradientmail.records.commit import RoundRecord
from gradientmail.records.control import Boundary
from gradientmail.records.head import Head
from gradientmail.run import Version
from gradientmail.store.memory import MemoryStore
from tests.closer.bench import EVERYONE, Bench, inline, make_bench

STALE_TWO = {"max_staleness": 2, "grace_s": 0.0}


async def trained(scratch: Path, rounds: int = 3, **settings: Any) -> tuple[Bench, list[Version]]:
    """Return a run of some rounds that two learners contributed to, and its versions."""
    bench = await make_bench(scratch, **settings)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    versions = [closer.present]
    for number in range(rounds):
        for fill, learner in enumerate(sorted(EVERYONE), start=number + 1):
            await bench.post(learner, versions[-1], fill=float(fill))
        versions.append(await close(bench, closer))
    return bench, versions


async def close(bench: Bench, closer: FragmentCloser) -> Version:
    return await bench.while_time_passes(closer.close_next(lambda: EVERYONE, lambda _: None))


async def verified(bench: Bench) -> Verified:
    return await verify_run(bench.store, bench.scratch / "verify", offload=inline)


async def faults_of(bench: Bench) -> list[tuple[str, str]]:
    return [(fault.key, fault.reason) for fault in (await verified(bench)).faults]


async def rewrite(bench: Bench, version: Version, **changes: Any) -> str:
    """Write a commit anew, behind the back of the protocol; return its key."""
    assert version.record is not None
    record = msgspec.structs.replace(version.record, **changes)
    key = keys.commit(record.fragment, record.version)
    await bench.store.put(key, [canonical.encode(record)])
    return key


async def sweep(bench: Bench, boundary: int, *doomed: str) -> None:
    record = Boundary(
        run=bench.run.name, fragment=0, version=boundary, nonce=fresh_nonce(bench.rng)
    )
    await bench.run.mailbox.create_boundary(record)
    await bench.store.delete(doomed)


# -- a sound run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"uplink": "I8", "downlink": "I4", "merge": "radial-directional-mean"},
        {"published": "BF16", "weights": "tokens2-per-step"},
        {"outer": "sgd", "outer_lr": 1.0},
    ],
)
async def test_every_version_of_a_kept_run_is_derived_again(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    bench, _ = await trained(tmp_path, **settings)
    result = await verified(bench)
    assert result.faults == ()
    (fragment,) = result.fragments
    assert (fragment.version, fragment.derived, fragment.not_derived) == (3, 3, ())
    assert fragment.payloads == len(await bench.store.list("fragments/"))


async def test_a_fresh_run_is_sound(tmp_path: Path) -> None:
    result = await verified(await make_bench(tmp_path, fragments=2))
    assert [(one.fragment, one.version, one.payloads) for one in result.fragments] == [
        (0, 0, 1),
        (1, 0, 1),
    ]
    assert result.faults == ()


async def test_empty_and_stale_rounds_are_sound(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path, rounds=1, **STALE_TWO)
    closer = FragmentCloser(bench.desk("second"), versions[-1])
    for learner in EVERYONE:
        await bench.post(learner, versions[-1], run="run-other")
    versions.append(await close(bench, closer))
    await bench.post("ann", versions[1])
    await bench.post("ann", versions[2])
    await bench.post("bob", versions[2])
    versions.append(await close(bench, closer))
    (fragment,) = (result := await verified(bench)).fragments
    assert result.faults == ()
    assert (fragment.version, fragment.derived, fragment.empty) == (3, 2, 1)


async def test_what_was_swept_is_said_and_is_no_fault(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path, rounds=4)
    doomed = [version.params.key for version in versions[:2]]
    await sweep(bench, 1, *doomed, *(entry.key for entry in await mail_of(bench, 0)))
    result = await verified(bench)
    assert result.faults == ()
    (fragment,) = result.fragments
    assert fragment.derived == 2
    assert [(one.first, one.last, one.reason) for one in fragment.not_derived] == [
        (1, 2, "the payloads of the version before are swept")
    ]


async def mail_of(bench: Bench, base: int) -> Sequence[Any]:
    return await bench.store.list(keys.mail_before(0, base))


async def test_it_leaves_no_file_behind_but_those_of_the_newest_version(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path)
    await verified(bench)
    left = {path.name for path in (tmp_path / "verify").iterdir()}
    refs = (versions[-1].params, versions[-1].outer)
    newest = {ref.key.replace("/", "_") for ref in refs if ref}
    assert left == newest | {"derived_params", "derived_outer"}


# -- records ----------------------------------------------------------------------------------


def changed_participant(record: RoundRecord, **changes: Any) -> dict[str, Any]:
    first, *others = record.participants
    return {"participants": (msgspec.structs.replace(first, **changes), *others)}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda r: {"run": "run-other"}, "of run 'run-other'"),
        (lambda r: {"parent": r.params.digest}, "its parent is"),
        (lambda r: {"applied": {}}, "its `applied` does not follow"),
        (lambda r: {"applied": {**r.applied, "eve": 0}}, "its `applied` does not follow"),
        (lambda r: {"participants": ()}, "it has no participants, but is not empty"),
        (lambda r: {"empty": True}, "it is empty, but has participants"),
        (lambda r: {"outer": None}, "the run's settings call for ['outer', 'params']"),
        (lambda r: {"update": r.params}, "the run's settings call for"),
        (lambda r: {"norm": 7.0}, "its weights, norms or cosines are not what its inputs give"),
        (lambda r: {"cosine": 0.5}, "its weights, norms or cosines are not what its inputs give"),
        (lambda r: changed_participant(r, weight=7.0), "ann's contribution weighs 7.0, by"),
        (lambda r: changed_participant(r, clip=0.5), "its clip factors do not follow"),
        (lambda r: changed_participant(r, base=2), "ann's contribution lies under another's key"),
        (lambda r: changed_participant(r, base=2), "is too old or too new"),
        (lambda r: changed_participant(r, base=0), "against version 0 counts twice"),
        (lambda r: changed_participant(r, nonce="f" * 32), "lies under another's key"),
        (lambda r: changed_participant(r, key=r.participants[1].key), "lies under another's key"),
        (lambda r: {"participants": r.participants[:1] * 2}, "version 1 counts twice"),
    ],
)
async def test_a_record_that_does_not_follow_from_those_before_it_is_named(
    tmp_path: Path, change: Callable[[RoundRecord], dict[str, Any]], reason: str
) -> None:
    bench, versions = await trained(tmp_path, rounds=2)
    assert versions[2].record is not None
    key = await rewrite(bench, versions[2], **change(versions[2].record))
    assert any(where == key and reason in why for where, why in await faults_of(bench))


async def test_a_nonce_counts_once(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path, rounds=2)
    assert versions[1].record is not None
    key = await rewrite(bench, versions[2], nonce=versions[1].record.nonce)
    assert (key, "its nonce is that of an earlier version") in await faults_of(bench)


async def test_a_payload_of_another_version_is_named(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path, rounds=2)
    key = await rewrite(bench, versions[2], params=versions[1].params)
    reason = f"its params lies under another version: {versions[1].params.key}"
    assert (key, reason) in await faults_of(bench)


async def test_a_record_that_cannot_be_read_ends_the_walk(tmp_path: Path) -> None:
    bench, _ = await trained(tmp_path)
    await bench.store.put(keys.commit(0, 2), [b"{}"])
    result = await verified(bench)
    assert result.fragments[0].version == 1
    assert [(fault.key, fault.reason.partition(":")[0]) for fault in result.faults] == [
        (keys.commit(0, 2), "not a RoundRecord record")
    ]


async def test_a_gap_in_the_chain_is_a_fault(tmp_path: Path) -> None:
    bench, _ = await trained(tmp_path)
    await bench.store.delete([keys.commit(0, 2)])
    assert await faults_of(bench) == [(keys.commit(0, 2), "it is missing, but version 3 is there")]


async def tell(bench: Bench, *versions: int) -> None:
    head = Head(run=bench.run.name, term=1, closer="c", versions=versions)
    await bench.run.mailbox.put_head(head)


@pytest.mark.parametrize("left", [0, 2])
async def test_newest_commits_that_are_gone_are_a_fault_by_the_head(
    tmp_path: Path, left: int
) -> None:
    bench, _ = await trained(tmp_path)
    await tell(bench, 3)
    await bench.store.delete([keys.commit(0, number) for number in range(left + 1, 4)])
    missing = (keys.commit(0, left + 1), "it is missing, but head.json tells of version 3")
    assert missing in await faults_of(bench)


async def test_a_head_that_is_old_or_of_another_run_or_plan_is_no_fault(tmp_path: Path) -> None:
    bench, _ = await trained(tmp_path, rounds=1)
    await tell(bench, 0)
    assert await faults_of(bench) == []
    await tell(bench, 1, 7)
    assert await faults_of(bench) == []
    await tell(bench)
    assert await faults_of(bench) == []
    other = Head(run="run-other", term=1, closer="c", versions=(7,))
    await bench.run.mailbox.put_head(other)
    assert await faults_of(bench) == []


async def test_a_boundary_that_takes_the_newest_version_is_a_fault(tmp_path: Path) -> None:
    bench, _ = await trained(tmp_path, rounds=2)
    await sweep(bench, 2)
    reason = "it lets the newest version be swept"
    assert await faults_of(bench) == [(keys.boundary(0, 2), reason)]


async def test_a_retained_run_that_was_swept_is_a_fault(tmp_path: Path) -> None:
    bench, _ = await trained(tmp_path, rounds=2, retain=True)
    await sweep(bench, 1)
    reason = "the run is to retain everything, but was swept"
    assert await faults_of(bench) == [(keys.boundary(0, 1), reason)]


# -- payloads and contributions ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda data: data[:-1] + b"\x01", "digest"),
        (lambda data: data[:-1], "bytes and digest"),
        (lambda data: data + b"\x00", "bytes"),
    ],
)
async def test_a_payload_that_is_not_what_its_record_says_is_named(
    tmp_path: Path, spoil: Callable[[bytes], bytes], reason: str
) -> None:
    bench, versions = await trained(tmp_path)
    key = versions[1].params.key
    data = await bench.store.read(key)
    assert data is not None
    await bench.store.put(key, [spoil(data)])
    result = await verified(bench)
    assert [fault.key for fault in result.faults] == [key]
    assert reason in result.faults[0].reason
    assert [(one.first, one.last, one.reason) for one in result.fragments[0].not_derived] == [
        (2, 2, "the payloads of the version before are damaged")
    ]


async def test_a_payload_missing_above_the_boundary_is_named(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path)
    await sweep(bench, 0, versions[2].params.key)
    reason = "it is missing; version 2 needs it"
    assert await faults_of(bench) == [(versions[2].params.key, reason)]


async def test_a_swept_payload_that_an_empty_version_still_needs_is_named(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path, rounds=1)
    closer = FragmentCloser(bench.desk("second"), versions[-1])
    for learner in EVERYONE:
        await bench.post(learner, versions[-1], run="run-other")
    await close(bench, closer)
    await sweep(bench, 1, versions[1].params.key)
    assert (versions[1].params.key, "it is missing; version 2 needs it") in await faults_of(bench)


async def test_a_version_that_is_not_what_its_inputs_give_is_named(tmp_path: Path) -> None:
    """Its payload has the digest the record says: only deriving it again finds it out."""
    bench, versions = await trained(tmp_path)
    ref = versions[3].params
    data = await bench.store.read(ref.key)
    assert data is not None
    forged = data[:-4] + b"\x00\x00\x80\x3f"
    await bench.store.put(ref.key, [forged])
    digest = canonical.digest_of(forged)
    key = await rewrite(bench, versions[3], params=msgspec.structs.replace(ref, digest=digest))
    result = await verified(bench)
    assert [(fault.key, fault.reason) for fault in result.faults] == [
        (key, "its params is not what its inputs give")
    ]
    assert result.fragments[0].derived == 2


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (None, "it is missing; version 2 used it"),
        (b"", "0 bytes cannot hold a header; version 2 used it"),
    ],
)
async def test_a_contribution_that_is_no_longer_what_was_used_is_named(
    tmp_path: Path, spoil: bytes | None, reason: str
) -> None:
    bench, versions = await trained(tmp_path)
    assert versions[2].record is not None
    key = versions[2].record.participants[1].key
    await (bench.store.delete([key]) if spoil is None else bench.store.put(key, [spoil]))
    result = await verified(bench)
    assert [(fault.key, fault.reason) for fault in result.faults] == [(key, reason)]
    assert result.fragments[0].derived == 2


async def test_a_contribution_overwritten_by_another_good_one_is_named(tmp_path: Path) -> None:
    bench, versions = await trained(tmp_path)
    assert versions[2].record is not None
    used = versions[2].record.participants[0]
    _, data = bench.contribution(used.learner, versions[1], fill=9.0, nonce=used.nonce)
    await bench.store.put(used.key, [data])
    reason = "it is not what was used; version 2 used it"
    assert await faults_of(bench) == [(used.key, reason)]


async def test_the_run_goes_on_meanwhile(tmp_path: Path) -> None:
    """Rounds that close, and sweeps, between our looks are no faults."""

    class Living(MemoryStore):
        async def list(self, prefix: str, after: str = "") -> Any:
            if prefix == keys.commits_of(0):
                for n in (4, 5):
                    self._objects[keys.commit(0, n)] = b"-"
            return await super().list(prefix, after)

    store = Living()
    bench, _ = await trained(tmp_path, store=store)
    assert await faults_of(bench) == []
