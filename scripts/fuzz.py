"""Fuzz what reads foreign bytes first, guided by coverage: the header check or the record decoder.

    scripts/fuzz header|record [atheris and libFuzzer flags, such as -max_total_time=60]

It ends at the first input that raises anything but the one error there is, and writes it down.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gradientmail"]):
    from gradientmail.codecs.payload import PayloadFormat
    from gradientmail.codecs.precision import Precision
    from gradientmail.errors import PayloadError, RecordError
    from gradientmail.records import canonical
    from gradientmail.records.commit import RoundRecord
    from gradientmail.records.contribution import ContributionRecord
    from gradientmail.records.head import Head
    from gradientmail.records.presence import Presence

FORMAT = PayloadFormat(4096, {"delta": Precision.I8})
NONCE = "0" * 32
DIGEST = f"xxh3_128:{NONCE}"
CONTRIBUTION = ContributionRecord(
    run="r",
    learner="l",
    incarnation=NONCE,
    fragment=0,
    base=1,
    anchor=DIGEST,
    steps=2,
    tokens=3,
    step_s=0.5,
    final=False,
    precision="I8",
    norms=(1.5, None),
    digest=DIGEST,
    nonce=NONCE,
)
PRESENCE = Presence(run="r", learner="l", incarnation=NONCE, count=1, versions=(1, 2), loss=0.5)
KINDS = (ContributionRecord, RoundRecord, Presence, Head)


def header(data: bytes) -> None:
    """Check a header, and that what is let through has the one text there is."""
    try:
        found = FORMAT.check_header(data, len(data) + FORMAT.data_bytes)
    except PayloadError:
        return
    text = data[8 : found.data_start].rstrip(b" ")
    if text != FORMAT.header(found.metadata)[8:].rstrip(b" "):
        raise AssertionError("a header was let through that is not of its format")


def record(data: bytes) -> None:
    """Decode a record of the kind that the first byte draws, and encode it again."""
    kind = KINDS[data[0] % len(KINDS)] if data else KINDS[0]
    try:
        found = canonical.decode(kind, "key", data[1:])
    except RecordError:
        return
    if canonical.decode(kind, "key", canonical.encode(found)) != found:
        raise AssertionError("a record does not read back as it is")


SEEDS = {
    "header": [FORMAT.header(None), FORMAT.header(canonical.encode(CONTRIBUTION).decode())],
    "record": [b"\0" + canonical.encode(CONTRIBUTION), b"\2" + canonical.encode(PRESENCE)],
}
TARGETS: dict[str, Callable[[bytes], None]] = {"header": header, "record": record}


def main() -> None:
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(__doc__)
    corpus = Path("build/fuzz", name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (corpus / f"seed-{number}").write_bytes(seed)
    sys.argv += ["-max_len=8192", "-artifact_prefix=build/fuzz/", str(corpus)]
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
