"""What a world got to see: a batch of seeds in which something never happened proves nothing."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from gradientmail.simulation.bucket import Mutation
from gradientmail.simulation.checks import COMMIT, LETTER, PAYLOAD, TERM, Record
from gradientmail.simulation.weather import Fault
from gradientmail.simulation.world import Outcome

_FAULTS = frozenset(fault for fault in Fault if fault is not Fault.UNSEEN)
_LAST = rb"\"final\":true"

EXPECTED: Final = (
    *sorted(f"fault {fault}" for fault in _FAULTS),
    "create found its own object",
    "create found another's object",
    "two closers raced, and the loser went on",
    "another closer took over",
    "twins posted against one base",
    "a learner restarted from its state",
    "a closer was paused beyond its lease",
    "an empty round",
    "a round of several contributions",
    "a stale contribution was used",
    "a contribution was rejected",
    "a contribution was dropped, to be carried",
    "a norm was clipped",
    "payloads were swept",
    "a last word was posted",
)
"""In a batch of some hundred worlds of the family ``any``; most of it in thirty."""


def sightings_of(outcome: Outcome) -> Counter[str]:
    """Return how often each thing was seen in one world."""
    seen: Counter[str] = Counter()
    seen.update(_in_events(outcome))
    for change in outcome.mutations:
        if change.data is not None and COMMIT.fullmatch(change.key):
            seen.update(_in_record(json.loads(change.data)))
    seen.update(_in_changes(outcome.mutations))
    return seen


def _in_events(outcome: Outcome) -> Iterator[str]:
    lost: set[tuple[str, str]] = set()
    lease_s = outcome.scenario.settings.lease_s
    for event in outcome.events:
        if event.outcome in _FAULTS:
            yield f"fault {event.outcome}"
        match event.what:
            case "exists":
                yield f"create found {event.outcome} object"
                if event.outcome != "its own" and COMMIT.fullmatch(event.key):
                    lost.add((event.process, event.key))
            case "read" if (event.process, event.key) in lost:
                yield "two closers raced, and the loser went on"
            case "absent" if PAYLOAD.fullmatch(event.key):
                yield "a reader missed a swept payload"
            case "restored":
                yield "a learner restarted from its state"
            case "pause" if event.process.startswith("closer") and float(event.outcome) > lease_s:
                yield "a closer was paused beyond its lease"


def _in_record(record: Record) -> Iterator[str]:
    participants = record.get("participants", [])
    bases = [one["base"] for one in participants]
    sights = {
        "an empty round": record.get("empty", False),
        "a round of several contributions": len(participants) > 1,
        "a stale contribution was used": any(base < record["version"] - 1 for base in bases),
        "a contribution was rejected": bool(record.get("rejected")),
        "a norm was clipped": any(one["clip"] != 1.0 for one in participants),
    }
    yield from (what for what, seen in sights.items() if seen)


def _in_changes(mutations: list[Mutation]) -> Iterator[str]:
    posted: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    holder = ""
    for change in mutations:
        slot = change.process.partition("#")[0]
        if change.data is None:
            yield from ["payloads were swept"] if PAYLOAD.fullmatch(change.key) else []
        elif match := LETTER.fullmatch(change.key):
            posted[match.groups()[:3]].add(slot)
            yield from ["a last word was posted"] if _LAST in change.data[:8192] else []
        elif TERM.fullmatch(change.key):
            yield from ["another closer took over"] if holder not in ("", slot) else []
            holder = slot
        elif _dropped(change):
            yield "a contribution was dropped, to be carried"
    for slots in posted.values():
        yield from ["twins posted against one base"] if len(slots - {"operator"}) > 1 else []


def _dropped(change: Mutation) -> bool:
    presence = change.key.startswith("learners/") and change.process.startswith("learner")
    return presence and b'"dropped":' in (change.data or b"")
