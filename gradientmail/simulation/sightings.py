"""What a world got to see: a batch of seeds in which something never happened proves nothing."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import structs

from gradientmail.config import RunSettings
from gradientmail.simulation.bucket import Mutation
from gradientmail.simulation.checks import (
    COMMIT,
    LETTER,
    OPERATOR,
    PAYLOAD,
    SWEPT,
    TERM,
    Record,
    least_of,
)
from gradientmail.simulation.line import Event
from gradientmail.simulation.weather import Fault
from gradientmail.simulation.world import Outcome

_FAULTS = frozenset(fault for fault in Fault if fault is not Fault.UNSEEN)
_LAST = rb"\"final\":true"

COARSE: Final = ("I2", "SIGN", "SPARSE")

EXPECTED: Final = (
    *sorted(f"fault {fault}" for fault in _FAULTS),
    "a create was taken at once",
    "a create was asked again and taken",
    "a create was asked again and found its own object",
    "a create found another's object",
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
    "a robust rule merged contributions",
    "a rule had too few contributions",
    *(f"contributions in {codec} counted" for codec in COARSE),
    "a round asked for some of the learners",
    "payloads were swept",
    "a last word was posted",
    "a closer went on from a boundary",
    "hostile mail was rejected",
    "hostile mail that is good counted",
    "the operator added an object",
    "the operator deleted an object",
    "the operator spoiled a hint",
    "a process was killed again and again",
    "a closer's clock ran at a third or less, or three times as fast",
    "a wall clock was off by a day",
    "three closers took part",
    "there was no lease",
    "a lease was judged by a wrong clock",
    "versions followed an outage of ten minutes",
)
"""In a batch of some hundred worlds of the family ``any``; most of it in sixty."""

OFTEN_KILLED = 4
LEASES: Final = {
    "no-lease": "there was no lease",
    "wrong-clock": "a lease was judged by a wrong clock",
}
DAY_S = 86_400.0


def sightings_of(outcome: Outcome) -> Counter[str]:
    """Return how often each thing was seen in one world."""
    seen: Counter[str] = Counter()
    seen.update(_in_events(outcome))
    seen.update(_in_creates(outcome.events))
    seen.update(_in_scenario(outcome))
    for change in outcome.mutations:
        if change.data is not None and COMMIT.fullmatch(change.key):
            record = json.loads(change.data)
            seen.update(_in_record(record))
            seen.update(_of_settings(outcome.scenario.settings, record))
            seen.update(_of_hostile(outcome, record))
    seen.update(_in_changes(outcome.mutations))
    return seen


def _in_scenario(outcome: Outcome) -> Iterator[str]:
    scenario = outcome.scenario
    closers = [member for member in scenario.fleet if member.role == "closer"]
    lived = {event.process.partition("#")[0] for event in outcome.events}
    if len([one for one in closers if one.slot in lived]) >= 3:
        yield "three closers took part"
    if any(not 1 / 3 < one.clock.rate < 3 for one in closers):
        yield "a closer's clock ran at a third or less, or three times as fast"
    if any(abs(member.clock.wall_s) > DAY_S for member in scenario.fleet):
        yield "a wall clock was off by a day"
    if scenario.lease != "kept":
        yield LEASES[scenario.lease]
    outages = [one for one in scenario.weather.spells if one.fault is Fault.OUTAGE]
    ends_s = [min(one.end_s, scenario.weather.calm_after_s) for one in outages]
    commits = [change.at for change in outcome.mutations if COMMIT.fullmatch(change.key)]
    if any(at > end_s for at in commits for end_s in ends_s):
        yield "versions followed an outage of ten minutes"


def _in_creates(events: Sequence[Event]) -> Iterator[str]:
    """Yield the ways in which creates went that some process asked for."""
    asked: Counter[tuple[str, str]] = Counter()
    for event in events:
        one = event.process, event.key
        if event.what == "create":
            asked[one] += 1
        elif event.what in ("created", "exists") and asked[one] > 0:
            again = asked[one] > 1
            if event.outcome == "another's":
                yield "a create found another's object"
            elif event.what == "created":
                yield (
                    "a create was asked again and taken" if again else "a create was taken at once"
                )
            elif again:
                yield "a create was asked again and found its own object"


def _of_settings(settings: RunSettings, record: Record) -> Iterator[str]:
    if record.get("missing"):
        yield "a rule had too few contributions"
    if not record.get("participants"):
        return
    if least_of(structs.asdict(settings)) > 1:
        yield "a robust rule merged contributions"
    if settings.uplink in COARSE:
        yield f"contributions in {settings.uplink} counted"


def _of_hostile(outcome: Outcome, record: Record) -> Iterator[str]:
    if any(one["key"] in outcome.forged for one in record.get("rejected", [])):
        yield "hostile mail was rejected"
    if any(one["key"] in outcome.forged for one in record.get("participants", [])):
        yield "hostile mail that is good counted"


def _in_events(outcome: Outcome) -> Iterator[str]:
    lost: set[tuple[str, str]] = set()
    swept = False
    for event in outcome.events:
        if event.outcome in _FAULTS:
            yield f"fault {event.outcome}"
        match event.what:
            case "exists" if event.outcome != "its own" and COMMIT.fullmatch(event.key):
                lost.add((event.process, event.key))
            case "read" if (event.process, event.key) in lost:
                yield "two closers raced, and the loser went on"
            case "created" if SWEPT.fullmatch(event.key):
                swept = True
            case "list" if swept and event.key.startswith("swept/"):
                yield "a closer went on from a boundary"
            case "absent" if PAYLOAD.fullmatch(event.key):
                yield "a reader missed a swept payload"
    yield from _in_lives(outcome)


def _in_lives(outcome: Outcome) -> Iterator[str]:
    kills: Counter[str] = Counter()
    lease_s = outcome.scenario.settings.lease_s
    for event in outcome.events:
        match event.what:
            case "restored":
                yield "a learner restarted from its state"
            case "pause" if event.process.startswith("closer") and float(event.outcome) > lease_s:
                yield "a closer was paused beyond its lease"
            case "killed":
                kills[event.process.partition("#")[0]] += 1
            case _:
                pass
    if max(kills.values(), default=0) >= OFTEN_KILLED:
        yield "a process was killed again and again"


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
    shown: set[str] = set()
    holder = ""
    for change in mutations:
        slot = change.process.partition("#")[0]
        if slot == OPERATOR:
            yield _of_operator(change)
        elif change.data is None:
            yield from ["payloads were swept"] if PAYLOAD.fullmatch(change.key) else []
        elif match := LETTER.fullmatch(change.key):
            posted[match.groups()[:3]].add(slot)
            yield from ["a last word was posted"] if _LAST in change.data[:8192] else []
        elif TERM.fullmatch(change.key):
            yield from ["another closer took over"] if holder not in ("", slot) else []
            holder = slot
        elif change.key == "head.json":
            yield from _asked(change.data, shown)
        elif slot.startswith("learner"):
            shown.add(change.key.removeprefix("learners/").removesuffix(".json"))
            yield from ["a contribution was dropped, to be carried"] if _dropped(change) else []
    for slots in posted.values():
        yield from ["twins posted against one base"] if len(slots - {"operator"}) > 1 else []


def _of_operator(change: Mutation) -> str:
    if change.data is None:
        return "the operator deleted an object"
    hint = change.key == "head.json" or change.key.startswith(("terms/", "learners/"))
    return "the operator spoiled a hint" if hint else "the operator added an object"


def _asked(head: bytes, shown: set[str]) -> Iterator[str]:
    asked = json.loads(head)["asked"] if b'"asked":' in head else []
    if any(set(names) < shown for _, names in asked):
        yield "a round asked for some of the learners"


def _dropped(change: Mutation) -> bool:
    return change.key.startswith("learners/") and b'"dropped":' in (change.data or b"")
