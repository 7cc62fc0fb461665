"""Canonical bytes: equal records have equal bytes, and only those bytes are accepted.

JSON by msgspec, every object's keys sorted, so that re-encoding what was parsed must give the same
bytes back: duplicate keys, insignificant space and unusual numbers die there. A field that a newer
gradientmail added is accepted and ignored; another major version of the format is refused by name.
"""

import re
from typing import Final, TypeVar

import msgspec
import xxhash

from gradientmail.errors import FormatVersionError, RecordError

MAX_RECORD_BYTES: Final = 32 << 20
"""Room for the manifest of a model of a hundred thousand tensors; all other records are small."""

_MAX_REASON: Final = 300
"""Characters of a foreign object that may reach a reason: reasons are recorded themselves."""

R = TypeVar("R", bound=msgspec.Struct)


def digest_of(data: bytes | memoryview) -> str:
    """Return the digest of ``data`` as records write it: the algorithm, then 32 hex digits."""
    return f"xxh3_128:{xxhash.xxh3_128_hexdigest(data)}"


def encode(record: msgspec.Struct) -> bytes:
    """Return the canonical bytes of ``record``.

    >>> from gradientmail.records.control import Stop
    >>> encode(Stop(run="r1", reason="done", nonce="0" * 32))
    b'{"kind":"stop/1","nonce":"00000000000000000000000000000000","reason":"done","run":"r1"}'

    Raises:
        RecordError: no reader would accept it, or would read something else. An object that was
            created cannot be taken back, so this is found before.
    """
    data = msgspec.json.encode(record, order="sorted")
    key = f"a new {type(record).__name__}"
    if decode(type(record), key, data) != record:
        raise RecordError(key, "it would not read back as it is: it holds NaN or infinity")
    return data


def decode(kind: type[R], key: str, data: bytes) -> R:
    """Return the record of type ``kind`` whose canonical bytes are ``data``, read from ``key``.

    Raises:
        FormatVersionError: written by a gradientmail whose records this one cannot read.
        RecordError: ``data`` is not such a record.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise RecordError(key, f"{len(data)} bytes where a record has at most {MAX_RECORD_BYTES}")
    try:
        tree = msgspec.json.decode(data)
        canonical = msgspec.json.encode(tree, order="sorted")
    except (msgspec.DecodeError, RecursionError) as exc:
        raise RecordError(key, f"not a JSON record: {exc}") from exc
    if canonical != data:
        raise RecordError(key, "not the canonical form of its own content")
    _check_kind(kind, key, tree)
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as exc:
        reason = str(exc)[:_MAX_REASON]
        raise RecordError(key, f"not a {kind.__name__} record: {reason}") from exc


def _check_kind(kind: type[msgspec.Struct], key: str, tree: object) -> None:
    """Refuse another kind of record; the same kind in another major version by name."""
    want = str(kind.__struct_config__.tag)
    have = tree.get("kind") if isinstance(tree, dict) else None
    if have == want:
        return
    same_kind = re.compile(re.escape(want.partition("/")[0]) + "/[0-9]{1,9}")
    if isinstance(have, str) and same_kind.fullmatch(have):
        raise FormatVersionError(
            key,
            f"format {have!r}: this gradientmail reads {want!r}; use the version that wrote it",
        )
    raise RecordError(key, f"not a {kind.__name__} record: its `kind` is not {want!r}")
