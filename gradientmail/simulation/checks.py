"""What must hold of every world, judged from the bucket's raw past alone.

Nothing of the protocol is imported: records are read as plain JSON, keys by patterns of our own.
``check_history`` replays every change in order and says what is wrong, in words.
"""

import json
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import xxhash

from gradientmail.simulation.bucket import Mutation

ONCE = re.compile(r"manifest\.json|(commits|swept)/\d{4}/\d{10}\.json|(terms|control)/\w+\.json")
COMMIT = re.compile(r"commits/(\d{4})/(\d{10})\.json")
TERM = re.compile(r"terms/(\d{10})\.json")
SWEPT = re.compile(r"swept/(\d{4})/(\d{10})\.json")
PAYLOAD = re.compile(r"fragments/(\d{4})/(\d{10})/[0-9a-f]{32}\.\w+\.safetensors")
LETTER = re.compile(
    r"mail/(\d{4})/(\d{10})/([A-Za-z0-9][\w-]{0,63})/([0-9a-f]{32})\.0000-of-0001\.safetensors"
)

OPERATOR = "operator"

Record = dict[str, Any]


@dataclass
class Chain:
    """One fragment as its commits tell it."""

    digests: list[str]
    records: list[Record | None]
    used: dict[tuple[str, int], int] = field(default_factory=dict)
    boundary: int = -1

    @property
    def head(self) -> int:
        """Newest version."""
        return len(self.records) - 1


@dataclass
class History:
    """The bucket at one instant of the replay."""

    settings: Record = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    ever: dict[str, bytes] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    terms: int = 0
    wrong: list[str] = field(default_factory=list)


def digest_of(data: bytes) -> str:
    """Return the digest as records write it."""
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(data)}"


def payloads_of(record: Record) -> Iterator[Record]:
    """Yield what a commit's record names: key, size and digest of each payload."""
    for role in ("params", "outer", "update"):
        if record.get(role) is not None:
            yield record[role]


def payloads_named(mutations: Iterable[Mutation], fragment: int, above: int) -> frozenset[str]:
    """Return the payloads that versions above ``above`` name: an empty one names older ones."""
    named: set[str] = set()
    for change in mutations:
        match = COMMIT.fullmatch(change.key)
        if match and change.data and int(match[1]) == fragment and int(match[2]) > above:
            named |= {ref["key"] for ref in payloads_of(json.loads(change.data))}
    return frozenset(named)


def check_history(mutations: Sequence[Mutation]) -> list[str]:
    """Return everything that is wrong with a bucket's past; nothing, in a good one."""
    history = History()
    for mutation in mutations:
        before = len(history.wrong)
        _check(history, mutation)
        history.wrong[before:] = [
            f"{mutation.at:.3f} {mutation.process} {mutation.operation} {mutation.key}: {what}"
            for what in history.wrong[before:]
        ]
        if mutation.data is None:
            history.objects.pop(mutation.key, None)
        else:
            history.objects[mutation.key] = history.ever[mutation.key] = mutation.data
    return history.wrong


def _check(history: History, change: Mutation) -> None:
    key, data, wrong = change.key, change.data, history.wrong
    if ONCE.fullmatch(key) and history.ever.get(key, data) != data:
        wrong.append("a key that is created once was changed")
    if data is None:
        if change.process != OPERATOR:
            _check_delete(history, key)
    elif key == "manifest.json":
        _take_manifest(history, data)
    elif match := COMMIT.fullmatch(key):
        _check_commit(history, int(match[1]), int(match[2]), data)
    elif match := TERM.fullmatch(key):
        if int(match[1]) != history.terms + 1:
            wrong.append(f"term {int(match[1])} after {history.terms}")
        history.terms = int(match[1])
    elif match := SWEPT.fullmatch(key):
        _check_boundary(history, history.chains[int(match[1])], int(match[2]))
    elif PAYLOAD.fullmatch(key) and history.ever.get(key, data) != data:
        wrong.append("a payload was overwritten with another one")


def _take_manifest(history: History, data: bytes) -> None:
    manifest = json.loads(data)
    history.settings = manifest["settings"]
    for spec in manifest["fragments"]:
        _check_payload(history, spec["params"])
        history.chains.append(Chain(digests=[digest_of(data)], records=[spec]))


def _check_payload(history: History, ref: Record) -> None:
    found = history.objects.get(ref["key"])
    if found is None:
        history.wrong.append(f"names the payload {ref['key']}, which is not there")
    elif (len(found), digest_of(found)) != (ref["size_bytes"], ref["digest"]):
        history.wrong.append(f"the payload {ref['key']} is not what it says")


def _check_commit(history: History, p: int, version: int, data: bytes) -> None:
    chain, record, wrong = history.chains[p], json.loads(data), history.wrong
    if version <= chain.head:
        return  # changed, which has been said
    if version != chain.head + 1:
        wrong.append(f"version {version} follows {chain.head}")
        return
    if (record["fragment"], record["version"]) != (p, version):
        wrong.append("its record is of another version")
    if record["parent"] != chain.digests[-1]:
        wrong.append("its parent is not the version before")
    parent = chain.records[-1] or {}
    moved = record["params"] != parent["params"] or bool(record.get("participants"))
    if record.get("empty") and moved:
        wrong.append("an empty round that changes something")
    for ref in payloads_of(record):
        _check_payload(history, ref)
    _check_participants(history, chain, version, record)
    _check_least(history, record)
    chain.digests.append(digest_of(data))
    chain.records.append(record)


def _check_participants(history: History, chain: Chain, version: int, record: Record) -> None:
    wrong, participants = history.wrong, record.get("participants", [])
    staleness = history.settings.get("max_staleness", 0)
    applied = dict((chain.records[-1] or {}).get("applied", {}))
    for one in participants:
        name, base = one["learner"], one["base"]
        if (name, base) in chain.used:
            wrong.append(f"{name}'s work on base {base} is used again")
        chain.used[name, base] = version
        applied[name] = max(base, applied.get(name, 0))
        if not version - 1 - staleness <= base <= version - 1:
            wrong.append(f"{name}'s base {base} is out of date, or not yet there")
        _check_letter(history, chain, one)
    if record.get("applied", {}) != applied:
        wrong.append(f"applied is {record.get('applied')}, expected {applied}")


def _check_least(history: History, record: Record) -> None:
    """No version comes of fewer contributions than its rule needs to withstand liars."""
    least = least_of(history.settings)
    counted = sum(one["weight"] > 0.0 for one in record.get("participants", []))
    if not record.get("empty") and counted < least:
        history.wrong.append(f"{counted} contributions, and its rule needs {least}")


def least_of(settings: Record) -> int:
    """Return how many contributions a run's merging rule needs."""
    trim: int = settings.get("merge_settings", {}).get("trim", 1)
    least = {"coordinate-median": 3, "trimmed-mean": 2 * trim + 1}
    return least.get(settings.get("merge", ""), 1)


def _check_letter(history: History, chain: Chain, one: Record) -> None:
    """A contribution is what its record says, and was made against this chain."""
    wrong, data = history.wrong, history.ever.get(one["key"])
    match = LETTER.fullmatch(one["key"])
    if data is None or match is None:
        wrong.append(f"uses {one['key']}, which never was")
        return
    if digest_of(data) != one["digest"]:
        wrong.append(f"{one['key']} is not what was used")
        return
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    letter = json.loads(header["__metadata__"]["gradientmail"])
    claims = ("learner", "base", "nonce", "steps", "tokens", "incarnation")
    if any(letter[claim] != one[claim] for claim in claims):
        wrong.append(f"{one['key']} says other than the commit that uses it")
    if letter["anchor"] != chain.digests[letter["base"]]:
        wrong.append(f"{one['key']} was made against another chain")


def _check_boundary(history: History, chain: Chain, boundary: int) -> None:
    keep = history.settings.get("keep_versions", 3)
    if boundary > chain.head - keep:
        history.wrong.append(f"a boundary at {boundary}, the head being {chain.head}")
    chain.boundary = max(chain.boundary, boundary)


def _check_delete(history: History, key: str) -> None:
    payload, letter = PAYLOAD.fullmatch(key), LETTER.fullmatch(key)
    match = payload or letter
    if match is None:
        history.wrong.append("only payloads and mail may be deleted")
        return
    chain, version = history.chains[int(match[1])], int(match[2])
    if version > chain.boundary:
        history.wrong.append(f"deleted above the boundary {chain.boundary}")
    kept = chain.records[chain.boundary + 1 :]
    if any(ref["key"] == key for record in kept if record for ref in payloads_of(record)):
        history.wrong.append("deleted, and a version above the boundary needs it")


def check_presences(mutations: Iterable[Mutation]) -> list[str]:
    """No process goes backwards: the versions a learner says it has only rise."""
    said: defaultdict[str, list[tuple[int, list[int]]]] = defaultdict(list)
    for change in mutations:
        if change.process.startswith("learner") and change.key.startswith("learners/"):
            presence = json.loads(change.data or b"{}")
            said[change.process].append((presence["count"], presence["versions"]))
    wrong = []
    for process, presences in said.items():
        for (_, before), (_, after) in pairwise(sorted(presences)):
            if any(new < old for old, new in zip(before, after, strict=True)):
                wrong.append(f"{process} went from versions {before} to {after}")
    return wrong


def check_counts(
    mutations: Iterable[Mutation], steps: Mapping[str, int], bad: Container[str] = ()
) -> list[str]:
    """No step counts twice: no learner's steps in the commits exceed those it took.

    ``bad`` are the keys of hostile mail that must not be used; what else hostile learners post
    counts as what it says.
    """
    counted: defaultdict[tuple[str, int], int] = defaultdict(int)
    wrong = []
    for change in mutations:
        if change.data is not None and (match := COMMIT.fullmatch(change.key)):
            for one in json.loads(change.data).get("participants", []):
                counted[one["learner"], int(match[1])] += one["steps"]
                wrong += [f"{change.key} uses {one['key']}"] if one["key"] in bad else []
    return wrong + [
        f"{count} steps of {name} are in fragment {p}, and it took {steps.get(name, 0)}"
        for (name, p), count in sorted(counted.items())
        if count > steps.get(name, 0) and not name.startswith("eve-")
    ]
