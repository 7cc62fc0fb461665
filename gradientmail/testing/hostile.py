"""Hostile mail: a corpus of bad contributions, each with the one outcome that is right.

    for specimen in hostile_mail(run, run.origin(0)):
        await store.put(specimen.key, [specimen.body()])

A closer that meets them rejects each with a reason that matches, ignores it, or accepts it, and
closes its round with the honest rest. The same run gives the same bytes.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gradientmail.codecs.precision import Precision
from gradientmail.records import keys
from gradientmail.run import Run, Version
from gradientmail.testing.damage import FOREIGN_BODIES
from gradientmail.testing.forging import (
    Forger,
    Outcome,
    Specimen,
    instead,
    padded,
    swap,
    with_field,
)

TWO_VALUES: Final = "one index of a tile has two values"
BOMB: Final = "header bomb"
BOMB_TENSORS = 1_500_000
"""Empty tensors of the header bomb; safetensors 0.8 needs a minute and 2 GB for them."""


def hostile_mail(run: Run, base: Version) -> Iterator[Specimen]:
    """Yield the corpus against ``base``; every specimen comes from a learner of its own."""
    forger = Forger(run, base)
    for source in _sources():
        yield from source(forger)


def drawn_mail(run: Run, base: Version, rng: random.Random, *, count: int) -> list[Specimen]:
    """Return ``count`` specimens drawn from one part of the corpus, none of them a bomb."""
    forger = Forger(run, base, count=rng.randrange(10**9))
    found = [one for one in rng.choice(_sources())(forger) if one.name != BOMB]
    return rng.sample(found, min(count, len(found)))


def _sources() -> tuple[Callable[[Forger], Iterator[Specimen]], ...]:
    return (_bodies, _tensors, _headers, _records, _fields, _lies, _numbers, _keys)


# -- bytes that are no payload ----------------------------------------------------------------


def _bodies(forger: Forger) -> Iterator[Specimen]:
    header = "header|cannot hold|cut off|calls for"
    for name, body in FOREIGN_BODIES.items():
        yield forger.letter(f"body: {name}", header, whole=instead(body))
    cuts = {"in the length": 5, "in the header": 100, "after the header": 4096, "in the data": -9}
    for where, cut in cuts.items():
        yield forger.letter(f"cut {where}", header, whole=_first(cut))
    yield forger.letter("a byte short", "calls for", whole=lambda data: data[:-1])
    yield forger.letter("a byte long", "calls for", whole=lambda data: data + b"\x00")
    yield forger.letter("twice itself", "calls for", whole=lambda data: data + data)
    for length in (0, 1, 4087, 4089, 2**31, 2**63, 2**64 - 1):
        yield forger.letter(f"header length {length}", "header", whole=_of_length(length))
    claim = forger.claim(forger.data)
    yield Specimen(
        name=BOMB,
        key=keys.mail(claim.fragment, claim.base, claim.learner, claim.nonce),
        body=header_bomb,
        reason=r"the header claims \d+ bytes, more than",
    )


def _first(end: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:end]


def _of_length(length: int) -> Callable[[bytes], bytes]:
    return lambda data: length.to_bytes(8, "little") + data[8:]


def header_bomb() -> bytes:
    """Return a header of 1.5 million empty tensors: 84 MB that hold nothing."""
    entry = b'"%07x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    return padded(b"{%s}" % b",".join(entry % index for index in range(BOMB_TENSORS)))


# -- headers ----------------------------------------------------------------------------------


def _tensors(forger: Forger) -> Iterator[Specimen]:
    """Yield headers whose first tensor is not what the format calls for."""
    first, tensor = forger.format.placed[0], _first_tensor(forger)
    name, dtype, end = f"{first.section}.{first.entry.name}", first.entry.dtype, first.end
    items, offsets = f'"shape":[{first.items}]', f'"data_offsets":[0,{end}]'
    other = {"F32": "I32", "F16": "BF16", "BF16": "F16", "I16": "U16"}[dtype]
    empty = '"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    changes = {
        "a tensor twice": swap(tensor, f"{tensor},{tensor}"),
        "an empty tensor more": swap(tensor, f"{empty},{tensor}"),
        "a tensor less": swap(tensor, '"x":0'),
        "a tensor of another name": swap(f'"{name}"', '"params.values"'),
        "a wrong type of the right size": swap(f'"dtype":"{dtype}"', f'"dtype":"{other}"'),
        "a type that is none": swap(f'"dtype":"{dtype}"', '"dtype":"complex"'),
        "a hole": swap(offsets, f'"data_offsets":[8,{end + 8}]'),
        "an overlap": swap(offsets, f'"data_offsets":[0,{end + 2}]'),
        "offsets reversed": swap(offsets, f'"data_offsets":[{end},0]'),
        "offsets below zero": swap(offsets, f'"data_offsets":[-{end},0]'),
        "offsets beyond the end": swap(offsets, f'"data_offsets":[0,{2**63}]'),
        "offsets of ten thousand digits": swap(offsets, f'"data_offsets":[0,{"9" * 10_000}]'),
        "a shape that overflows": swap(items, f'"shape":[{2**63},2]'),
        "a shape that overflows to itself": swap(items, f'"shape":[{first.items + 2**64}]'),
        "a shape below zero": swap(items, '"shape":[-1]'),
        "a shape of text": swap(items, f'"shape":["{first.items}"]'),
        "a shape of fractions": swap(items, f'"shape":[{first.items}.0]'),
        "a shape of 1e999": swap(items, '"shape":[1e999]'),
        "a shape of two": swap(items, f'"shape":[1,{first.items}]'),
        "a shape of fifty thousand": swap(items, f'"shape":[{"1," * 50_000}{first.items}]'),
        "deep nesting": swap(tensor, f'"x":{"[" * 100_000}{"]" * 100_000},{tensor}'),
        "space inside it": swap(tensor, f" {tensor}"),
    }
    for what, change in changes.items():
        yield forger.letter(f"header: {what}", "the header differs", header=change)


def _headers(forger: Forger) -> Iterator[Specimen]:
    """Yield headers that are wrong around their tensors."""
    rest = f",{_first_tensor(forger)}}}"
    changes: Mapping[str, Callable[[str], str | bytes]] = {
        "metadata twice": swap("{", '{"__metadata__":{},'),
        "metadata's key twice": swap('{"gradientmail":', '{"gradientmail":"","gradientmail":'),
        "metadata's other key": swap('{"gradientmail":', '{"format":"pt","gradientmail":'),
        "metadata a list": instead('{"__metadata__":[]' + rest),
        "metadata a number": instead('{"__metadata__":{"gradientmail":1}' + rest),
        "metadata not closed": instead('{"__metadata__":{"gradientmail":"'),
        "metadata with a newline": instead('{"__metadata__":{"gradientmail":"a\nb"}' + rest),
        "a lone surrogate": instead('{"__metadata__":{"gradientmail":"\\ud800"}' + rest),
        "a byte order mark": lambda text: "\ufeff" + text,
        "UTF-16": lambda text: text.encode("utf-16"),
        "not UTF-8": lambda text: text.encode()[:30] + b"\xc3\x28" + text.encode()[30:],
        "NUL behind it": lambda text: text + "\x00",
        "a line break behind it": lambda text: text + "\n",
        "text behind it": lambda text: text + "{}",
        "a list": lambda text: f"[{text}]",
        "null": instead("null"),
    }
    for what, change in changes.items():
        yield forger.letter(f"header: {what}", "header|metadata", header=change)


def _first_tensor(forger: Forger) -> str:
    placed = forger.format.placed[0]
    return (
        f'"{placed.section}.{placed.entry.name}":{{"dtype":"{placed.entry.dtype}",'
        f'"shape":[{placed.items}],"data_offsets":[0,{placed.end}]}}'
    )


# -- records ----------------------------------------------------------------------------------


def _records(forger: Forger) -> Iterator[Specimen]:
    """Yield headers that hold no contribution's record, and records of a newer version."""
    changes: Mapping[str, Callable[[str], str]] = {
        "empty": instead(""),
        "null": instead("null"),
        "a list": lambda text: f"[{text}]",
        "no field": instead("{}"),
        "a field less": swap('"steps":4,', ""),
        "a field twice": swap('"steps":4', '"steps":4,"steps":4'),
        "another kind": swap("contribution/1", "stop/1"),
        "a newer format": swap("contribution/1", "contribution/2"),
        "space": swap(",", ", "),
        "a byte order mark": lambda text: "\ufeff" + text,
        "NUL": lambda text: text + "\x00",
        "text behind it": lambda text: text + "{}",
        "cut": lambda text: text[:-9],
        "deep nesting": swap('"steps"', f'"deep":{"[" * 50_000}{"]" * 50_000},"steps"'),
        "a lone surrogate": swap('"learner":"', '"learner":"\\ud800'),
        "a path for a name": swap('"learner":"', '"learner":"../../'),
        "NUL in a name": swap('"learner":"', '"learner":"\\u0000'),
    }
    for what, change in changes.items():
        yield forger.letter(
            f"record: {what}", "not a|not the canonical|format 'contribution/2'", record=change
        )
    yield forger.letter(
        "no record",
        "holds no contribution record",
        header=instead(forger.format.header(None)[8:].rstrip(b" ")),
    )
    newer = swap('"tokens"', '"thoughts":[1,{}],"tokens"')
    yield forger.letter("record: a field of a newer version", record=newer)
    long = "x" * 200_000
    yield forger.letter("record: long", record=swap('"tokens"', f'"text":"{long}","tokens"'))
    yield forger.letter(
        "record: too long",
        "the header claims",
        record=swap('"tokens"', f'"text":"{long}{long}","tokens"'),
    )


def _fields(forger: Forger) -> Iterator[Specimen]:
    """Yield records with a field that no record may have."""
    digits = "9" * 10_000
    changes = {
        "steps of 0": swap('"steps":4', '"steps":0'),
        "steps below 0": swap('"steps":4', '"steps":-4'),
        "steps of a half": swap('"steps":4', '"steps":0.5'),
        "steps of text": swap('"steps":4', '"steps":"4"'),
        "steps of 2^53": swap('"steps":4', f'"steps":{2**53}'),
        "steps of ten thousand digits": swap('"steps":4', f'"steps":{digits}'),
        "tokens of 0": swap('"tokens":40', '"tokens":0'),
        "tokens of ten thousand digits": swap('"tokens":40', f'"tokens":{digits}'),
        "tokens of true": swap('"tokens":40', '"tokens":true'),
        "step_s of NaN": swap('"step_s":0.5', '"step_s":NaN'),
        "step_s of 1e999": swap('"step_s":0.5', '"step_s":1e999'),
        "step_s below 0": swap('"step_s":0.5', '"step_s":-0.5'),
        "step_s of 1e100": swap('"step_s":0.5', '"step_s":1e100'),
        "final of 1": swap('"final":false', '"final":1'),
        "norms of NaN": swap('"norms":[', '"norms":[NaN,'),
        "norms of 1e39": swap('"norms":[', '"norms":[1e39,'),
        "norms below 0": swap('"norms":[', '"norms":[-1.0,'),
        "norms of text": swap('"norms":[', '"norms":["1",'),
        "a digest of another kind": swap('"digest":"xxh3_128:', '"digest":"sha256:'),
        "an incarnation that is no nonce": swap("e" * 32, "E" * 32),
    }
    for what, change in changes.items():
        yield forger.letter(f"record: {what}", "not a", record=change)


def _lies(forger: Forger) -> Iterator[Specimen]:
    """Yield records that are well formed and untrue."""
    count = len(forger.layout.slots)
    zeros = f"xxh3_128:{'0' * 32}"
    changes: Mapping[str, tuple[str, object]] = {
        "run": ("its run is", "run-other"),
        "learner": ("its learner is", "mallory"),
        "nonce": ("its nonce is", "f" * 32),
        "fragment": ("its fragment is", forger.base.fragment + 1),
        "base": ("its base is", forger.base.number + 1),
        "precision": ("its codec is", "F64"),
        "anchor": ("made against another version", zeros),
        "digest": ("its data has digest", zeros),
    }
    for what, (reason, value) in changes.items():
        yield forger.letter(f"another {what}", reason, record=with_field(what, value))
    norms: Mapping[str, tuple[str, list[float | None]]] = {
        "none": ("its number of tensors is 0", []),
        "one more": (f"its number of tensors is {count + 1}", [1.0] * (count + 1)),
        "a thousandth": ("its header says", [0.001] * count),
        "a million": ("its header says", [1_000_000.5] * count),
        "absent": ("its header says None", [None] * count),
    }
    for what, (reason, value) in norms.items():
        yield forger.letter(f"norms: {what}", reason, record=with_field("norms", value))


# -- numbers ----------------------------------------------------------------------------------


def _numbers(forger: Forger) -> Iterator[Specimen]:
    """Yield data that is what its record says, and should not be."""
    flipped = bytearray(forger.data)
    flipped[-1] ^= 0x80
    yield forger.letter("a flipped bit", "its data has digest", whole=_flipped_end)
    entries = {one.entry.name for one in forger.format.placed}
    reason = TWO_VALUES if "low" in entries and _repeats_its_last(forger) else ""
    yield forger.letter("a flipped bit that its record admits", reason, data=flipped)
    if "bases" in entries:
        yield from _scaled(forger)
    elif "scales" in entries:
        yield from _coarse(forger)
    else:
        yield from _floats(forger)


def _flipped_end(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0x80])


def _repeats_its_last(forger: Forger) -> bool:
    """Whether SPARSE sent fewer than 64 numbers: its last index then stands there again."""
    placed, data = {one.entry.name: one for one in forger.format.placed}, bytes(forger.data)
    low, high = data[: placed["low"].end][-2:], data[placed["high"].end - 1]
    return low[0] == low[1] and high >> 4 == high & 0xF


def _floats(forger: Forger) -> Iterator[Specimen]:
    nan, inf = "NaN or infinite", {"F32": "7f800000", "F16": "7c00", "BF16": "7f80"}
    precision = forger.run.algorithm.delta_dtype
    bits: dict[str, tuple[str, str]] = {
        "infinity": (inf[precision], nan),
        "minus infinity": (f"f{inf[precision][1:]}", nan),
        "NaN": ("7fff" + "ffff" * (precision == Precision.F32), nan),
        "NaN that signals": (inf[precision][:-1] + "1", nan),
        "the smallest number": ("0" * (len(inf[precision]) - 1) + "1", ""),
        "minus zero": ("8" + "0" * (len(inf[precision]) - 1), ""),
    }
    if precision != Precision.F16:
        wide = precision == Precision.F32
        bits["3e38"] = ("7f61b1e6" if wide else "7f62", "above the largest")
        bits["minus 3e38"] = ("ff61b1e6" if wide else "ff62", "above the largest")
        bits["1e13"] = ("5511" + "84e7" * wide, "above the limit of 1e")
    for what, (number, reason) in bits.items():
        raw = bytes.fromhex(number)[::-1]
        once = raw + bytes(forger.data)[len(raw) :]
        yield forger.letter(f"{what} once", reason, data=once)
        everywhere = raw * (len(forger.data) // len(raw))
        yield forger.letter(f"{what} everywhere", reason, data=everywhere)


def _scaled(forger: Forger) -> Iterator[Specimen]:
    """Yield wild scales. The smallest that can be written is above 0, the rest is the base's."""
    bases = next(one for one in forger.format.placed if one.entry.name == "bases")
    wild = {"0": 0, "-1": -1, "63": 63, "1563": 1563, "the least": -(2**15), "the most": 2**15 - 1}
    wild |= {"1e30": 0x714, "infinity": 0x7F8, "NaN": 0x7FC}
    for what, value in wild.items():
        data = bytearray(forger.data)
        data[bases.offset : bases.end] = value.to_bytes(2, "little", signed=True) * bases.items
        yield forger.letter(f"a scale base of {what}", "a scale base is not within", data=data)
    codes = next(one for one in forger.format.placed if one.entry.name == "codes")
    largest = bytearray(b"\xff" * codes.offset + b"\x7e" * (codes.end - codes.offset))
    largest[bases.offset : bases.end] = (1562).to_bytes(2, "little") * bases.items
    yield forger.letter("the largest scales", "above the limit of 1e", data=largest)
    has_nan = forger.run.algorithm.delta_dtype is Precision.F8_E4M3
    for code in (0x7E, 0x7F, 0x80, 0xFF):
        data = bytearray(forger.data)
        data[codes.offset : codes.end] = bytes([code]) * (codes.end - codes.offset)
        reason = "a code of F8_E4M3 is NaN" if has_nan and code % 0x80 == 0x7F else ""
        yield forger.letter(f"codes of {code:#x} everywhere", reason, data=data)


def _coarse(forger: Forger) -> Iterator[Specimen]:
    """Yield wild scales of formats that write them as BF16, and indices that are no set."""
    placed = {one.entry.name: one for one in forger.format.placed}
    scales, nan = placed["scales"], "NaN or infinite"
    wild = {
        "0": ("0000", ""),
        "NaN": ("7fc0", nan),
        "infinity": ("7f80", nan),
        "-1": ("bf80", "a scale is negative"),
        "1e30": ("7149", "above the limit of 1e"),
        "3e38": ("7f62", "above the largest"),
    }
    for what, (number, reason) in wild.items():
        data = bytearray(forger.data)
        data[scales.offset : scales.end] = bytes.fromhex(number)[::-1] * scales.items
        yield forger.letter(f"a scale of {what}", reason, data=data)
    if "low" not in placed:
        return
    low, codes = placed["low"], placed["codes"]
    falling = bytearray(forger.data)
    falling[low.offset : low.end] = bytes(range(255, 255 - low.items, -1))
    yield forger.letter("indices that fall", "the indices of a tile do not rise", data=falling)
    twice = bytearray(forger.data)
    twice[low.offset : low.end] = bytes(low.end - low.offset)
    twice[placed["high"].offset : placed["high"].end] = bytes(low.items // 2)
    twice[codes.offset : codes.end] = b"\xe4" * (codes.end - codes.offset)
    yield forger.letter("an index twice", TWO_VALUES, data=twice)


# -- keys -------------------------------------------------------------------------------------


def _keys(forger: Forger) -> Iterator[Specimen]:
    """Yield good contributions, and rubbish, where no closer may look."""
    fragment, base = forger.base.fragment, forger.base.number
    nonce = f"{forger.count:032x}"
    good = keys.mail(fragment, base, "eve", nonce)
    places = {
        "no contribution's name": f"mail/{fragment:04d}/notes.txt",
        "a name with a dot": good.replace("/eve/", "/e.v.e/"),
        "a name that is too long": good.replace("/eve/", f"/{'e' * 65}/"),
        "a nonce in capitals": good.replace(nonce, "A" * 32),
        "one of two parts": good.replace("-of-0001", "-of-0002"),
        "a longer version": good.replace(f"/{base:010d}/", f"/0{base:010d}/"),
        "a version to come": keys.mail(fragment, base + 5, "eve", nonce),
        "a fragment that is none": keys.mail(9999, base, "eve", nonce),
        "a suffix more": f"{good}.tmp",
    }
    for what, key in places.items():
        body = forger.letter(what).body
        yield Specimen(name=f"key: {what}", key=key, body=body, outcome=Outcome.IGNORED)
