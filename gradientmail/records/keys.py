"""The key of every object of a run: one function each, and the parsers readers need."""

import re
from typing import Final, NamedTuple

from gradientmail.config import NAME_PATTERN

MANIFEST: Final = "manifest.json"
HEAD: Final = "head.json"
STOP: Final = "control/stop.json"
LEARNERS: Final = "learners/"
TERMS: Final = "terms/"
COMMITS: Final = "commits/"
FRAGMENTS: Final = "fragments/"
MAIL: Final = "mail/"
GOSSIP: Final = "gossip/"

_VERSIONED = r"([0-9]{4})/([0-9]{10})"
_MAIL = re.compile(
    rf"mail/{_VERSIONED}/({NAME_PATTERN})/([0-9a-f]{{32}})\.0000-of-0001\.safetensors"
)
_PAYLOAD = re.compile(
    rf"fragments/{_VERSIONED}/[0-9a-f]{{32}}\.(params|outer|update)\.safetensors"
)
_GOSSIP = re.compile(rf"gossip/{_VERSIONED}/({NAME_PATTERN})\.safetensors")
_COMMIT = re.compile(rf"commits/{_VERSIONED}\.json")
_TERM = re.compile(r"terms/(0[0-9]{9})\.json")  # above is no takeover: its next has no key
_BOUNDARY = re.compile(rf"swept/{_VERSIONED}\.json")
_LEARNER = re.compile(rf"learners/({NAME_PATTERN})\.json")


def commit(fragment: int, version: int) -> str:
    """Return the key whose creation commits ``version`` of ``fragment``.

    >>> commit(3, 12)
    'commits/0003/0000000012.json'
    """
    return f"{COMMITS}{fragment:04d}/{version:010d}.json"


def commits_of(fragment: int) -> str:
    """Return the prefix of a fragment's commits."""
    return f"{COMMITS}{fragment:04d}/"


def payload(fragment: int, version: int, nonce: str, role: str) -> str:
    """Return a payload's key; ``role`` is params, outer or update."""
    return f"{FRAGMENTS}{fragment:04d}/{version:010d}/{nonce}.{role}.safetensors"


def payloads_of(fragment: int) -> str:
    """Return the prefix of a fragment's payloads."""
    return f"{FRAGMENTS}{fragment:04d}/"


def mail(fragment: int, base: int, learner: str, nonce: str) -> str:
    """Return a contribution's key."""
    return f"{MAIL}{fragment:04d}/{base:010d}/{learner}/{nonce}.0000-of-0001.safetensors"


def mail_of(fragment: int) -> str:
    """Return the prefix of a fragment's mail."""
    return f"{MAIL}{fragment:04d}/"


def mail_before(fragment: int, base: int) -> str:
    """Return a key after which a listing of the fragment's mail starts with base ``base``."""
    return f"{MAIL}{fragment:04d}/{base:010d}/"


def gossip(fragment: int, version: int, learner: str) -> str:
    """Return where a learner posts what its neighbours make their ``version`` of.

    >>> gossip(0, 7, "ann")
    'gossip/0000/0000000007/ann.safetensors'
    """
    return f"{GOSSIP}{fragment:04d}/{version:010d}/{learner}.safetensors"


def gossip_of(fragment: int) -> str:
    """Return the prefix of a fragment's gossip."""
    return f"{GOSSIP}{fragment:04d}/"


def term(number: int) -> str:
    """Return the key of the lease's term ``number``."""
    return f"{TERMS}{number:010d}.json"


def beat(number: int) -> str:
    """Return the key of that term's beat."""
    return f"{TERMS}{number:010d}.beat"


def learner(name: str) -> str:
    """Return the key of a learner's presence."""
    return f"{LEARNERS}{name}.json"


def boundary(fragment: int, version: int) -> str:
    """Return the key of a sweep's boundary."""
    return f"swept/{fragment:04d}/{version:010d}.json"


def boundaries_of(fragment: int) -> str:
    """Return the prefix of a fragment's boundaries."""
    return f"swept/{fragment:04d}/"


class MailKey(NamedTuple):
    """What a contribution's key says; its record must say the same."""

    fragment: int
    base: int
    learner: str
    nonce: str


def parse_mail(key: str) -> MailKey | None:
    """Return the parts of a contribution's key; None for a foreign object.

    >>> parse_mail(mail(0, 7, "alice", "0" * 32)).base
    7
    """
    match = _MAIL.fullmatch(key)
    return match and MailKey(int(match[1]), int(match[2]), match[3], match[4])


class GossipKey(NamedTuple):
    """What the key of a learner's post to its neighbours says; its record must say the same."""

    fragment: int
    version: int
    learner: str


def parse_gossip(key: str) -> GossipKey | None:
    """Return the parts of a gossip key; None for a foreign object.

    >>> parse_gossip(gossip(0, 7, "ann"))
    GossipKey(fragment=0, version=7, learner='ann')
    """
    match = _GOSSIP.fullmatch(key)
    return match and GossipKey(int(match[1]), int(match[2]), match[3])


def parse_commit(key: str) -> int | None:
    """Return the version in a commit's key; None for a foreign object."""
    match = _COMMIT.fullmatch(key)
    return match and int(match[2])


def parse_payload(key: str) -> tuple[int, int] | None:
    """Return (fragment, version) of a payload's key; None for a foreign object."""
    match = _PAYLOAD.fullmatch(key)
    return match and (int(match[1]), int(match[2]))


def parse_term(key: str) -> int | None:
    """Return the number in a term's key; None for a beat or a foreign object."""
    match = _TERM.fullmatch(key)
    return match and int(match[1])


def parse_learner(key: str) -> str | None:
    """Return the name in a presence's key; None for a foreign object."""
    match = _LEARNER.fullmatch(key)
    return match and match[1]


def parse_boundary(key: str) -> int | None:
    """Return the version in a boundary's key; None for a foreign object."""
    match = _BOUNDARY.fullmatch(key)
    return match and int(match[2])
