"""What learners and closers ask of the store: operations and bytes, on virtual time.

Counted beneath the retries, each page of a listing as one request. An idle minute is one in which
no round is due; a round is the mean of many in a steady run; a join and a takeover are counted up
to the moment at which training, or collecting, can begin.
"""

from collections.abc import Iterator
from itertools import pairwise

from benchmarks import peers
from benchmarks.frame import (
    ChildError,
    Figure,
    Options,
    Result,
    Skipped,
    Target,
    at_most,
    in_child,
)
from benchmarks.logged import Operation, described
from benchmarks.virtual import settings_of, world, write_history
from gradientmail.simulation.loop import run_virtual

P = 4
POLL_S = 1.0
LEARNERS = 4
PEER_ROUNDS = 160
"""Its rounds are lived through, so they are fewer."""
PAST_ROUNDS = {"tiny": 40, "quick": 2_000, "full": 10_000}


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    yield from run_virtual(_idle(until_s=400.0 if options.size == "tiny" else 1100.0))
    yield from run_virtual(_rounds(cycles=4 if options.size == "tiny" else 20))
    yield from run_virtual(_join(PAST_ROUNDS[options.size]))
    yield from run_virtual(_takeover(PAST_ROUNDS[options.size]))
    if options.peer:
        yield from _peer()


# -- an idle minute -------------------------------------------------------------------------


async def _idle(until_s: float) -> list[Result]:
    """A round every 100 s; a minute in the middle between two."""
    settings = settings_of(sync_every=400, fragments=P, poll_s=POLL_S)
    async with world(settings) as here:
        await here.create()
        here.closer("closer")
        for index in range(LEARNERS):
            here.learner(f"learner-{index}", step_s=1.0)
        await here.until(until_s)
        since = _idle_since(here.log.of(""), 60.0)
        learners = here.log.of("learner", since, since + 60.0)
        closer = here.log.of("closer", since, since + 60.0)
    reads = [one for one in learners if one.kind in ("read head", "read commits")]
    polls = 60.0 / POLL_S
    return [
        Figure(
            what="idle: reads of a learner in a poll_s",
            value=len(reads) / LEARNERS / polls,
            unit="reads",
            target=at_most(1.0),
            note=described(reads, LEARNERS) + " a minute",
        ),
        _count("idle minute: a learner", learners, LEARNERS),
        _count("idle minute: the closer", closer),
        _count("idle minute: all, per learner", [*learners, *closer], LEARNERS),
    ]


def _idle_since(operations: list[Operation], length_s: float) -> float:
    """Return the start of the last stretch in which nothing is posted, called or committed."""
    busy = [
        one.at
        for one in operations
        if one.kind in ("put mail", "create commits", "put head", "read fragments")
    ]
    quiet = [start for start, stop in pairwise(busy) if stop - start > length_s + 15.0]
    return quiet[-1] + 10.0


# -- one round ------------------------------------------------------------------------------


async def _rounds(cycles: int) -> list[Result]:
    """A round every 5 s, each learner in each."""
    step_s, sync_every = 0.25, 80
    settings = settings_of(sync_every=sync_every, fragments=P, poll_s=POLL_S)
    cycle_s = step_s * sync_every
    async with world(settings) as here:
        await here.create()
        here.closer("closer")
        for index in range(LEARNERS):
            here.learner(f"learner-{index}", step_s=step_s)
        warm_s = 3 * cycle_s
        await here.until(warm_s + cycles * cycle_s)
        learners, closer = here.log.of("learner", warm_s), here.log.of("closer", warm_s)
        posted = [one for one in here.log.of("learner") if one.kind == "put mail"]
    closed = [one.key.split("/") for one in closer if one.kind == "create commits"]
    rounds, per = len(closed), len(closed) * LEARNERS
    bases = {(fragment, int(name.removesuffix(".json")) - 1) for _, fragment, name in closed}
    where = [(one, one.key.split("/")) for one in posted]
    mail = [one for one, parts in where if (parts[1], int(parts[2])) in bases]
    payloads = [one for one in learners if one.kind == "read fragments"]
    records = [one for one in learners if one.kind in ("read head", "read commits")]
    beats = [one for one in learners if one.kind in ("put learners", "read learners")]
    note = f"{rounds} rounds, {LEARNERS} learners"
    return [
        _per_round("round: mail put by a learner", mail, per, 1.0, note),
        _per_round("round: head and commits read by a learner", records, per, 2.0),
        _per_round("round: payloads read by a learner", payloads, per, 1.0),
        _per_round("round: presence, read and written by a learner", beats, per),
        _per_round("round: a learner", learners, per),
        _per_round("round: the closer", closer, rounds),
        _per_round("round: all, per learner", [*learners, *closer], per),
        Figure(
            what="round: bytes of records to and from a learner",
            value=sum(one.size_bytes for one in (*records, *beats)) / per,
            unit="bytes",
        ),
    ]


def _per_round(
    what: str, operations: list[Operation], per: float, most: float | None = None, note: str = ""
) -> Figure:
    return Figure(
        what=what,
        value=round(sum(one.requests for one in operations) / per, 3),
        unit="requests",
        target=None if most is None else at_most(most),
        note=note or described(operations, per),
    )


# -- joining, taking over -------------------------------------------------------------------


async def _join(rounds: int) -> list[Result]:
    """A learner without a state joins a long run."""
    results: list[Result] = []
    for head in (True, False):
        async with world(settings_of(fragments=P, poll_s=POLL_S)) as here:
            await write_history(here.store, await here.create(), rounds, learners=2)
            if not head:
                await here.store.delete(["head.json"])
            actor = here.learner("learner", step_s=1.0)
            while not actor.joined:
                await here.until(here.now + 0.01)
            operations = here.log.of("learner")
        what, target = ("join", at_most(P + 4)) if head else ("join, the head lost", None)
        note = f"after {rounds} rounds: "
        results.append(_count(what, operations, target=target, note=note))
    return results


async def _takeover(rounds: int) -> list[Result]:
    """A closer takes over a lease that was released, with two learners live."""
    async with world(settings_of(fragments=P, poll_s=POLL_S)) as here:
        await write_history(here.store, await here.create(), rounds, learners=2)
        here.closer("closer")
        while not any(one.kind == "list mail" for one in here.log.of("closer")):
            await here.until(here.now + 0.01)
        first = next(one.at for one in here.log.of("closer") if one.kind == "list mail")
        operations = here.log.of("closer", until=first)
    note = f"after {rounds} rounds: "
    return [_count("takeover", operations, target=at_most(P + 8), note=note)]


def _count(
    what: str,
    operations: list[Operation],
    per: float = 1.0,
    *,
    target: Target | None = None,
    note: str = "",
) -> Figure:
    size_bytes = sum(one.size_bytes for one in operations) / per
    return Figure(
        what=what,
        value=sum(one.requests for one in operations) / per,
        unit="requests",
        target=target,
        note=f"{note}{size_bytes:,.0f} bytes; {described(operations, per)}",
    )


# -- the peer -------------------------------------------------------------------------------


def _peer() -> Iterator[Result]:
    peer = peers.GRADIENTMAIL_002
    try:
        python = peers.python_of(peer)
        found = in_child(
            "benchmarks.peer_gradientmail:requests", P, LEARNERS, PEER_ROUNDS, python=python
        )
    except (peers.PeerError, ChildError) as error:
        yield Skipped(what=peer.name, reason=str(error))
        return
    for what, value, note in found:
        yield Figure(what=what, value=value, unit="requests", of=peer.name, note=note)
