"""A person with a console, who leaves things in the bucket that are nobody's."""

import json
import random

from gradientmail.clock import fresh_nonce
from gradientmail.records import keys
from gradientmail.simulation.bucket import Bucket

NAME = "operator"

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
        bucket.put(NAME, rng.choice(STRAYS), rng.randbytes(rng.choice([0, 20, 5000])))
        return
    if choice == 1:
        bucket.put(NAME, keys.learner("ghost"), rng.randbytes(30))
        return
    letter = rng.choice(letters)
    parsed, data = keys.parse_mail(letter), bucket.read(letter)
    if parsed is None or data is None:
        return
    base = parsed.base + rng.randint(0, 1)
    key = keys.mail(parsed.fragment, base, parsed.learner, fresh_nonce(rng))
    forged = [data, data[: rng.randrange(len(data))], rng.randbytes(len(data)), b""]
    bucket.put(NAME, key, rng.choice(forged))


def forge_head(bucket: Bucket, rng: random.Random, *, back: bool) -> None:
    """Put a head hint that is wrong; ``back``: an old one, as from a restored backup."""
    found = bucket.read(keys.HEAD)
    if found is None:
        return
    head = json.loads(found)
    wrong_by = -1 if back else rng.randint(-5, 5)
    head["versions"] = [max(0, version + wrong_by) for version in head["versions"]]
    if not back and rng.random() < 0.2:
        head |= {"stopping": True, "done": True}
    text = json.dumps(head, sort_keys=True, separators=(",", ":"))
    bucket.put(NAME, keys.HEAD, text.encode() if back or rng.random() < 0.9 else found[:50])


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
    bucket.create(NAME, keys.STOP, text.encode())
