"""Damage: bytes that are no record and no payload, whatever they are said to be."""

import gzip
from collections.abc import Iterator

FOREIGN_BODIES = {
    "empty": b"",
    "one byte": b"\x08",
    "seven bytes": bytes(7),
    "a length and nothing": (4088).to_bytes(8, "little"),
    "zeros": bytes(9000),
    "ones": b"\xff" * 9000,
    "pickle": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "gzip": gzip.compress(bytes(100_000), mtime=0),
    "html": b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>",
    "zip": b"PK\x03\x04" + bytes(60),
    "json": b'{"kind":"contribution/1"}',
}


def broken_records(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield (what is wrong, bytes) made of a record's canonical bytes; none may be read."""
    yield from ((name, body) for name, body in FOREIGN_BODIES.items())
    for cut in range(1, len(good)):
        yield f"cut at {cut}", good[:cut]
    text = good.decode()
    first = text[1:].partition(",")[0]
    changes = {
        "a field twice": "{" + first + "," + text[1:],
        "a list": f"[{text}]",
        "a list of fifty thousand": f"[{','.join(['{}'] * 50_000)}]",
        "text behind it": text + "{}",
        "space": text.replace(",", ", ", 1),
        "a line break behind it": text + "\n",
        "NUL behind it": text + "\x00",
        "a byte order mark": "\ufeff" + text,
        "a newer format": text.replace('/1"', '/2"'),
        "deep nesting": "{" + f'"a":{"[" * 50_000}{"]" * 50_000},' + text[1:],
        "a lone surrogate": "{" + '"a":"\\ud800",' + text[1:],
        "ten thousand digits": "{" + f'"a":{"9" * 10_000},' + text[1:],
        "1e999": "{" + '"a":1e999,' + text[1:],
        "NaN": "{" + '"a":NaN,' + text[1:],
    }
    yield from ((name, changed.encode()) for name, changed in changes.items())
    yield "UTF-16", text.encode("utf-16")
    yield "not UTF-8", good[:-2] + b"\xc3\x28" + good[-2:]
