"""A person with a console, who adds, spoils and deletes what no promise stands on."""

import json
import random

from gradientmail.clock import fresh_nonce
from gradientmail.records import keys
from gradientmail.simulation.bucket import Bucket
from gradientmail.simulation.checks import OPERATOR, SWEPT
from gradientmail.testing.damage import broken_records

STRAYS = (
    "mail/",
    "commits/",
    "terms/notes.txt",
    "terms/0000000001.json.bak",
    "learners/.DS_Store",
    "learners/a name.json",
    "commits/0000/readme.md",
    "fragments/0000/",
    "fragments/0000/0000000001/old.safetensors",
    "swept/0000/",
    "control/",
)


def add_foreign(bucket: Bucket, rng: random.Random) -> None:
    """Add a stray object, or one that claims to be mail or a learner."""
    letters = [entry.key for entry in bucket.list(keys.MAIL) if keys.parse_mail(entry.key)]
    choice = rng.randrange(4)
    if choice == 0 or not letters:
        bucket.put(OPERATOR, rng.choice(STRAYS), rng.randbytes(rng.choice([0, 20, 5000])))
        return
    if choice == 1:
        bucket.put(OPERATOR, keys.learner("ghost"), rng.randbytes(30))
        return
    letter = rng.choice(letters)
    parsed, data = keys.parse_mail(letter), bucket.read(letter)
    if parsed is None or data is None:
        return
    base = parsed.base + rng.randint(0, 1)
    key = keys.mail(parsed.fragment, base, parsed.learner, fresh_nonce(rng))
    forged = [data, data[: rng.randrange(len(data))], rng.randbytes(len(data)), b""]
    bucket.put(OPERATOR, key, rng.choice(forged))


def delete_some(bucket: Bucket, rng: random.Random) -> None:
    """Delete a hint, a stray object, or mail and payloads that a sweep has left behind."""
    boundaries = _boundaries(bucket)
    swept = [
        entry.key
        for entry in bucket.list("fragments/")
        if (found := keys.parse_payload(entry.key)) and found[1] <= boundaries.get(found[0], -1)
    ]
    read = [
        entry.key
        for entry in bucket.list(keys.MAIL)
        if (letter := keys.parse_mail(entry.key))
        and letter.base < boundaries.get(letter.fragment, -1)
    ]
    doomed = rng.choice([_hints(bucket), read, swept, list(STRAYS)])
    if doomed:
        bucket.delete(OPERATOR, rng.choice(doomed))


def deface(bucket: Bucket, rng: random.Random) -> None:
    """Put something where a hint, a beat or a presence should be that is none."""
    if not (hints := _hints(bucket)):
        return
    found = bucket.read(rng.choice(hints)) or b"{}"
    broken = [body for _, body in broken_records(found)]
    other = bucket.read(rng.choice(hints)) or b""
    bucket.put(OPERATOR, rng.choice(hints), rng.choice([other, rng.choice(broken)]))


def _hints(bucket: Bucket) -> list[str]:
    """Return the keys of what is overwritten."""
    beats = [one.key for one in bucket.list(keys.TERMS) if one.key.endswith(".beat")]
    presences = [one.key for one in bucket.list(keys.LEARNERS)]
    return [keys.HEAD, *beats, *presences]


def _boundaries(bucket: Bucket) -> dict[int, int]:
    """Return how far each fragment was swept."""
    found: dict[int, int] = {}
    for entry in bucket.list("swept/"):
        if match := SWEPT.fullmatch(entry.key):
            p, version = int(match[1]), int(match[2])
            found[p] = max(found.get(p, -1), version)
    return found


def forge_head(bucket: Bucket, rng: random.Random, *, back: bool) -> None:
    """Put a head hint that is wrong; ``back``: an old one, as from a restored backup."""
    found = bucket.read(keys.HEAD)
    if found is None:
        return
    head = json.loads(found)
    wrong_by = -1 if back else rng.randint(-5, 5)
    head["versions"] = [max(0, version + wrong_by) for version in head["versions"]]
    if voucher := head.get("voucher"):
        voucher["version"] = max(1, voucher["version"] + wrong_by)
    if not back and rng.random() < 0.2:
        head |= {"stopping": True, "done": True}
    text = json.dumps(head, sort_keys=True, separators=(",", ":"))
    bucket.put(OPERATOR, keys.HEAD, text.encode() if back or rng.random() < 0.9 else found[:50])


def ask_to_stop(bucket: Bucket) -> None:
    """Ask the run to end."""
    manifest = bucket.read(keys.MANIFEST)
    stop = {
        "kind": "stop/1",
        "run": json.loads(manifest or b"{}")["run"],
        "reason": "the simulation is over",
        "nonce": "0" * 32,
    }
    text = json.dumps(stop, sort_keys=True, separators=(",", ":"))
    bucket.create(OPERATOR, keys.STOP, text.encode())
