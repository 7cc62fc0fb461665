"""An independent check of a whole run, from its bytes alone.

It shares nothing with the protocol: it reads JSON as JSON, and uses ``codecs`` and ``algorithms``
only to decode payloads and to derive every version again from its predecessor and contributions.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import xxhash
from torch import Tensor

from gradientmail.algorithm import Algorithm, algorithm_of
from gradientmail.algorithms.aggregation import Aggregation
from gradientmail.algorithms.aggregator import Counters
from gradientmail.algorithms.reduce import SquareSums
from gradientmail.codecs.layout import FragmentLayout, chunks, layout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import BufferTarget, PayloadWriter, decoded
from gradientmail.config import RunSettings, resolve

Objects = Mapping[str, bytes]
Record = dict[str, Any]

ROLES = ("params", "outer", "update")


@dataclass(frozen=True, kw_only=True)
class Chain:
    """One fragment of a run that was found sound.

    Attributes:
        records: Of version 1 on.
        derived: Versions that were derived again, bit for bit.
        params: The newest published parameters by tensor name.
    """

    records: list[Record]
    derived: list[int]
    params: dict[str, Tensor]

    @property
    def used(self) -> list[tuple[str, int]]:
        """(learner, base) of every contribution that counts."""
        return [(p["learner"], p["base"]) for r in self.records for p in _participants(r)]

    @property
    def payloads(self) -> list[tuple[str | None, ...]]:
        """The digests of every version's payloads."""
        return [tuple(r.get(role, {}).get("digest") for role in ROLES) for r in self.records]


def check(objects: Objects) -> list[Chain]:
    """Return the chain of every fragment; fail where one is not sound."""
    manifest = json.loads(objects["manifest.json"])
    chains = [
        _Fragment(objects, manifest, fragment).check()
        for fragment in range(len(manifest["fragments"]))
    ]
    known = {f"{fragment:04d}" for fragment in range(len(chains))}
    assert {key.split("/")[1] for key in objects if key.startswith("commits/")} <= known
    return chains


def digest_of(data: bytes) -> str:
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(data)}"


@dataclass
class _Fragment:
    objects: Objects
    manifest: Record
    number: int
    algorithm: Algorithm = field(init=False)
    layout: FragmentLayout = field(init=False)
    boundary: int = field(init=False)

    def __post_init__(self) -> None:
        settings = resolve(RunSettings, ("manifest", self.manifest["settings"]))
        self.algorithm = algorithm_of(settings)
        self.layout = self._layout()
        swept = re.compile(rf"swept/{self.number:04d}/([0-9]{{10}})\.json")
        matches = [match for key in self.objects if (match := swept.fullmatch(key))]
        self.boundary = max((int(match[1]) for match in matches), default=-1)

    def _layout(self) -> FragmentLayout:
        tensors = {spec["name"]: spec for spec in self.manifest["tensors"]}
        parts: dict[str, list[tuple[str, int]]] = {"parameter": [], "buffer": []}
        for entry in self.manifest["fragments"][self.number]["entries"]:
            spec = tensors[entry["name"]]
            numel = int(torch.Size(spec["shape"]).numel())
            parts[spec["kind"]].append((spec["name"], numel))
        return layout(parts["parameter"], parts["buffer"])

    # -- the chain -------------------------------------------------------------------------

    def check(self) -> Chain:
        origin = {"version": 0, "params": self.manifest["fragments"][self.number]["params"]}
        digests = [digest_of(self.objects["manifest.json"])]
        chain = [origin]
        derived = []
        for data in self._commits():
            record = json.loads(data)
            self._check_record(record, chain[-1], digests)
            if self._derive(record, chain[-1]):
                derived.append(record["version"])
            chain.append(record)
            digests.append(digest_of(data))
        used = [(p["learner"], p["base"]) for record in chain for p in _participants(record)]
        assert len(used) == len(set(used)), "a contribution counts at most once"
        return Chain(records=chain[1:], derived=derived, params=self._params(chain[-1]))

    def _commits(self) -> list[bytes]:
        name = re.compile(rf"commits/{self.number:04d}/[0-9]{{10}}\.json")
        keys = sorted(key for key in self.objects if name.fullmatch(key))
        wanted = [f"commits/{self.number:04d}/{v:010d}.json" for v in range(1, len(keys) + 1)]
        assert keys == wanted, "versions are contiguous"
        return [self.objects[key] for key in keys]

    def _check_record(self, record: Record, before: Record, digests: list[str]) -> None:
        version = record["version"]
        assert record["run"] == self.manifest["run"]
        assert (record["fragment"], version) == (self.number, before["version"] + 1)
        assert record["parent"] == digests[-1]
        if version > self.boundary:
            for role in ROLES:
                self._check_payload(record.get(role))
        if record.get("empty", False):
            assert not _participants(record)
            assert record["params"] == before["params"]
            assert record.get("outer") == before.get("outer")
        else:
            assert _participants(record)
        applied = dict(before.get("applied", {}))
        for participant in _participants(record):
            self._check_participant(record, participant, digests)
            learner, base = participant["learner"], participant["base"]
            assert applied.get(learner, -1) < base
            applied[learner] = base
        assert record.get("applied", {}) == applied

    def _check_payload(self, ref: Record | None) -> None:
        if ref is not None:
            data = self.objects[ref["key"]]
            assert (len(data), digest_of(data)) == (ref["size_bytes"], ref["digest"])

    def _check_participant(self, record: Record, used: Record, digests: list[str]) -> None:
        staleness = record["version"] - 1 - used["base"]
        assert 0 <= staleness <= self.algorithm.settings.max_staleness
        if used["base"] < self.boundary:
            return
        data = self.objects[used["key"]]
        assert digest_of(data) == used["digest"]
        header = _contribution(data)
        for name in ("learner", "incarnation", "nonce", "base", "steps", "tokens"):
            assert header[name] == used[name]
        assert header["run"] == self.manifest["run"]
        assert header["fragment"] == self.number
        assert header["anchor"] == digests[used["base"]]

    # -- deriving a version again ------------------------------------------------------------

    def _derive(self, record: Record, before: Record) -> bool:
        """Compare the payloads with those its inputs give; False where some were swept."""
        used = _participants(record)
        inputs = [before["params"]["key"], *(participant["key"] for participant in used)]
        inputs += [before[role]["key"] for role in ("outer",) if before.get(role)]
        outputs = [record[role]["key"] for role in ROLES if record.get(role)]
        if not used or not all(key in self.objects for key in [*inputs, *outputs]):
            return False
        bodies = [self.objects[participant["key"]] for participant in used]
        form = self.algorithm.delta_format(self.layout.numel)
        deltas = [decoded(body, form, section="delta") for body in bodies]
        counters = [
            _counters(_contribution(body), self._norms(delta), record["version"] - 1)
            for body, delta in zip(bodies, deltas, strict=True)
        ]
        sink = _Sink({role: made for role in ROLES if (made := self._format(role))})
        sources = [_Vectors({"delta": delta}) for delta in deltas]
        closing = Aggregation(self.algorithm.aggregator, self.layout, counters, sources)
        steps = before.get("outer_steps", 0)
        outcome = closing.run(_Vectors(self._state(before), before["version"], steps), sink)
        for role, target in sink.targets.items():
            assert digest_of(bytes(target.data)) == record[role]["digest"], role
        assert [p["weight"] for p in used] == list(outcome.weights)
        assert [p["clip"] for p in used] == list(outcome.clips)
        assert record.get("norm", 0.0) == outcome.norm
        assert record.get("cosine") == outcome.cosine
        return True

    def _format(self, role: str) -> PayloadFormat | None:
        made: PayloadFormat | None = getattr(self.algorithm, f"{role}_format")(self.layout.numel)
        return made

    def _norms(self, delta: Tensor) -> list[float]:
        sums = SquareSums(self.layout)
        for start, stop in chunks(0, self.layout.numel):
            sums.add(start, delta[start:stop])
        return sums.norms()

    def _state(self, record: Record) -> dict[str, Tensor]:
        return {
            section: decoded(self.objects[record[role]["key"]], form, section=section)
            for role in ("params", "outer")
            if record.get(role) and (form := self._format(role))
            for section in form.sections
        }

    def _params(self, record: Record) -> dict[str, Tensor]:
        flat = self._state({"params": record["params"]})["params"]
        return {
            slot.name: flat[slot.offset : slot.offset + slot.numel] for slot in self.layout.slots
        }


class _Vectors:
    """Sections by range; a contribution is one section."""

    def __init__(
        self, sections: Mapping[str, Tensor], version: int = 0, outer_steps: int = 0
    ) -> None:
        self._sections, self.version, self.outer_steps = sections, version, outer_steps

    def read(self, *at: Any) -> Any:
        *section, start, stop = at
        vector = self._sections.get(section[0] if section else "delta")
        return None if vector is None else vector[start:stop].clone()


class _Sink:
    def __init__(self, formats: Mapping[str, PayloadFormat]) -> None:
        self.targets = {role: BufferTarget() for role in formats}
        self._writers = {
            section: PayloadWriter(form, self.targets[role])
            for role, form in formats.items()
            for section in form.sections
        }

    @property
    def sections(self) -> frozenset[str]:
        return frozenset(self._writers)

    def write(self, section: str, start: int, chunk: Tensor) -> Tensor:
        return self._writers[section].write(section, start, chunk)


def _participants(record: Record) -> list[Record]:
    participants: list[Record] = record.get("participants", [])
    return participants


def _contribution(data: bytes) -> Record:
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    record: Record = json.loads(header["__metadata__"]["gradientmail"])
    return record


def _counters(header: Record, norms: list[float], onto: int) -> Counters:
    absent = [claim is None for claim in header["norms"]]
    return Counters(
        steps=header["steps"],
        tokens=header["tokens"],
        samples=header.get("samples", 0),
        staleness=onto - header["base"],
        norms=[None if gone else norm for gone, norm in zip(absent, norms, strict=True)],
    )
