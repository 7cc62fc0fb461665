"""A run without a closer, seen from outside: what its learners posted to each other.

Nothing is committed there: a learner posts its parameters before each mixing, keeps a few of these
posts, and tells nobody what it made of others'. Averaging by a doubly stochastic matrix keeps the
mean of all, so the mean of what was posted in a round is that of the models after it, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from msgspec.structs import replace
from torch import Tensor

from gradientmail.algorithm import FAST
from gradientmail.errors import PayloadError, RecordError, SettingsError
from gradientmail.learner.neighbours import fetched, judged, posts
from gradientmail.operations.verified import Fault, FragmentVerified, NotDerived
from gradientmail.protocol.recovery import last_repeatable
from gradientmail.records import keys
from gradientmail.records.keys import GossipKey
from gradientmail.run import Run
from gradientmail.store.local import Offload

UNRECORDED = "without a closer no record says who mixed with whom"


@dataclass(frozen=True)
class Mean:
    """What learners of one fragment have in common.

    Attributes:
        params: Flat float32.
        version: The newest that one of them posted.
        learners: Whose mean it is.
    """

    params: Tensor
    version: int
    learners: frozenset[str]


async def mean_posted(
    run: Run, fragment: int, *, version: int | None, learner: str | None
) -> Mean | None:
    """Return the mean of what learners posted; None: nobody has posted anything yet.

    Of each learner that others have not left behind its newest post counts, or that for
    ``version``; of ``learner`` alone where it is given.

    Raises:
        SettingsError: there is no such post.
        RecordError: one is damaged.
    """
    while True:
        there = await posts(run.mailbox.store, fragment)
        if not there and version is None and learner is None:
            return None
        chosen = _chosen(run, there, version=version, learner=learner)
        total = torch.zeros(run.layouts[fragment].numel, dtype=torch.float64)
        for key in chosen:
            data = await fetched(run, key)
            if data is None:  # swept meanwhile: there are newer ones
                break
            total += _params(run, key, data)
        else:
            return Mean(
                params=(total / len(chosen)).float(),
                version=_newest(chosen),
                learners=frozenset(key.learner for key in chosen),
            )


def _chosen(
    run: Run, there: Sequence[GossipKey], *, version: int | None, learner: str | None
) -> list[GossipKey]:
    """Return one post of each learner that is asked for."""
    asked = [
        key for key in there if learner in (None, key.learner) and version in (None, key.version)
    ]
    newest = {key.learner: key for key in sorted(asked, key=lambda key: key.version)}
    last = _newest(newest.values())
    if not newest:
        by = "" if learner is None else f" of {learner!r}"
        for_version = "" if version is None else f" for version {version}"
        names = ", ".join(sorted({key.learner for key in there})) or "nobody"
        numbers = ", ".join(map(str, sorted({key.version for key in there}))) or "none"
        raise SettingsError(
            f"no post{by}{for_version} is kept; there are those of {names}, for versions {numbers}"
        )
    keep_versions = run.manifest.settings.keep_versions
    return [
        key
        for key in newest.values()
        if last <= last_repeatable(key.version, keep_versions=keep_versions)
    ]


def _params(run: Run, key: GossipKey, data: bytes) -> Tensor:
    try:
        return judged(run, key, data)[FAST]
    except PayloadError as exc:
        raise RecordError(keys.gossip(*key), str(exc)) from exc


async def verify_posts(
    run: Run, found: FragmentVerified, *, offload: Offload
) -> tuple[FragmentVerified, list[Fault]]:
    """Add what can be said of a fragment's posts, each by itself, to what was found of it."""
    there = await posts(run.mailbox.store, found.fragment)
    faults: list[Fault] = []
    intact = 0
    for key in there:
        data = await fetched(run, key)
        if data is None:
            continue
        try:
            await offload(judged, run, key, data)
            intact += 1
        except (PayloadError, RecordError) as exc:
            reason = exc.reason if isinstance(exc, RecordError) else str(exc)
            faults.append(Fault(key=keys.gossip(*key), reason=reason))
    last = _newest(there)
    missed = (NotDerived(first=1, last=last, reason=UNRECORDED),) if last else ()
    seen = replace(found, version=last, payloads=found.payloads + intact, not_derived=missed)
    return seen, faults


def _newest(there: Iterable[GossipKey]) -> int:
    return max((key.version for key in there), default=0)
