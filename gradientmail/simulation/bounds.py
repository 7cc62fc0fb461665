"""What a world may cost: requests, memory and storage, by formulas that know nothing of the code.

With P fragments, M members of the fleet, a process's polls and leases (its seconds over
``poll_s`` and ``lease_s``, by its own clock), the versions committed meanwhile and the requests
that the weather left without an answer, each of which is asked again:

    requests of a learner   40 + (4 + P) * polls + 12 * versions + 3 * unanswered
    requests of a closer    the same with (4 + 2P + M) * polls + 10 * leases + (12 + 4M) * versions
    at once, a learner      3P + 4 requests, and P contributions and 64 KiB on their way
    at once, a closer       8P + M + 4 requests, and P versions and 64 KiB on their way
    payloads and mail       once the faults have stopped, nothing under a boundary that was there
                            when the next one was announced, and one more has been since: a sweep
                            may be cut short, and the next one finds what it left
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from gradientmail.simulation.bucket import Mutation
from gradientmail.simulation.checks import COMMIT, LETTER, PAYLOAD, SWEPT, payloads_named
from gradientmail.simulation.line import Line
from gradientmail.simulation.scenario import Member, Scenario

SMALL_BYTES = 64 * 1024
"""Records on their way beside contributions or payloads."""


def check_costs(
    scenario: Scenario, lines: Sequence[Line], mutations: Sequence[Mutation]
) -> list[str]:
    """Return which process asked more, or more at once, than its formula allows."""
    slots = {member.slot: member for member in scenario.fleet}
    commits = [change.at for change in mutations if COMMIT.fullmatch(change.key)]
    letter_bytes, version_bytes = _largest(lines, mutations)
    wrong: list[str] = []
    for line in lines:
        member = slots.get(line.process.partition("#")[0])
        if member is None or member.role == "hostile":
            continue
        versions = sum(line.began <= at <= line.ended for at in commits)
        largest = letter_bytes if member.role == "learner" else version_bytes
        wrong += _complaints(scenario, member, line, versions, largest)
    return wrong


def _complaints(
    scenario: Scenario, member: Member, line: Line, versions: int, largest_bytes: int
) -> Iterator[str]:
    fragments, members = scenario.settings.fragments, len(scenario.fleet)
    lived_s = (line.ended - line.began) * member.clock.rate
    polls, leases = lived_s / scenario.settings.poll_s, lived_s / scenario.settings.lease_s
    if member.role == "learner":
        routine, at_once = (4 + fragments) * polls + 12 * versions, 3 * fragments + 4
    else:
        routine = (4 + 2 * fragments + members) * polls + 10 * leases
        routine += (12 + 4 * members) * versions
        at_once = 8 * fragments + members + 4
    limits = {
        "requests": (line.operations, 40 + routine + 3 * line.failed),
        "requests at once": (line.most_open, at_once),
        "bytes on their way": (line.most_bytes, fragments * largest_bytes + SMALL_BYTES),
    }
    for what, (found, limit) in limits.items():
        if found > limit:
            yield f"{line.process} had {found} {what}, and {limit:.0f} are its limit"


def _largest(lines: Sequence[Line], mutations: Sequence[Mutation]) -> tuple[int, int]:
    """Return the bytes of the largest contribution, and of a version's payloads.

    What was sent counts, not only what arrived: a full store takes none of a large version.
    """
    sent = {change.key: len(change.data or b"") for change in mutations}
    letter_bytes = 0
    for line in lines:
        sent.update(line.sent)
        if line.process.startswith("learner"):
            letters = [size for key, size in line.sent.items() if LETTER.fullmatch(key)]
            letter_bytes = max(letter_bytes, *letters, 0)
    versions: defaultdict[str, int] = defaultdict(int)
    for key, size in sent.items():
        if PAYLOAD.fullmatch(key):
            versions[key.partition(".")[0]] += size  # a version's payloads share all but a role
    return letter_bytes, max(versions.values(), default=0)


def check_storage(scenario: Scenario, mutations: Sequence[Mutation]) -> list[str]:
    """Return what a sweep should have deleted after the faults had stopped, and is still there."""
    calm = [change for change in mutations if change.at > scenario.calm_s]
    announced: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for change in calm:
        if match := SWEPT.fullmatch(change.key):
            announced[int(match[1])].append((change.at, int(match[2])))
    live: dict[str, float] = {}
    for change in mutations:
        if change.data is None:
            live.pop(change.key, None)
        else:
            live[change.key] = change.at
    wrong: list[str] = []
    for p, boundaries in announced.items():
        if len(boundaries) > 2:
            (_, before), (at, _), _ = boundaries[-3:]
            wrong += _left(p, before, at, live, payloads_named(mutations, p, before))
    return wrong


def _left(
    fragment: int, boundary: int, at: float, live: Mapping[str, float], named: frozenset[str]
) -> Iterator[str]:
    for key, since in live.items():
        payload, letter = PAYLOAD.fullmatch(key), LETTER.fullmatch(key)
        match = payload or letter
        if match is None or int(match[1]) != fragment or since > at or key in named:
            continue
        if int(match[2]) < boundary + (payload is not None):
            yield f"{key} lies under the boundary {boundary} and was never deleted"
