"""What is wrong with a live run: pure rules over what was gathered, a finding each."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from gradientmail.doctor.facts import Bytes, FragmentFacts, RunFacts
from gradientmail.doctor.findings import Finding, Verdict
from gradientmail.doctor.skew import REFUSED_S, SUSPECT_S
from gradientmail.protocol.recovery import last_repeatable

SHOWN = 3
"""Of many of a kind, so many are named."""

PASSED, WARNED, FAILED = Verdict.PASSED, Verdict.WARNED, Verdict.FAILED

Rule = Callable[[RunFacts], Finding]


def judge_run(facts: RunFacts) -> list[Finding]:
    """Return one finding of every rule for how learners of the run exchange, or for its end."""
    rules = RULES[facts.settings.exchange] if facts.end is None else AFTER_THE_END
    return [rule(facts) for rule in rules]


def end(facts: RunFacts) -> Finding:
    """Nobody need close or train where the run has ended."""
    versions = ", ".join(str(one.version) for one in facts.fragments)
    detail = f"the run has ended: {facts.end}; versions {versions}"
    there = sorted(one.name for one in facts.learners if not one.left)
    return Finding("end", PASSED, detail + (f"; not yet left: {named(there)}" if there else ""))


def closer(facts: RunFacts) -> Finding:
    """Somebody must close rounds."""
    held, name = facts.closer, "closer"
    start = "start one: gradientmail closer RUN_URL"
    stands = "learners train on as far as overlap_steps allows, and no round is closed"
    if held is None:
        return Finding(name, FAILED, "no closer ever held the lease", start, stands)
    if held.released and not held.changed:
        return Finding(name, FAILED, f"{held.name} gave the lease back", start, stands)
    if not held.changed:
        detail = (
            f"{held.name} (term {held.term}) gave no sign of life for {facts.observed_s:.0f} s"
        )
        return Finding(name, FAILED, detail, f"look for it, or {start}", stands)
    return Finding(name, PASSED, f"{held.name} holds the lease (term {held.term}) and beats")


def learners(facts: RunFacts) -> Finding:
    """Somebody must train; who fell silent is named."""
    name, live = "learners", facts.live
    silent = sorted(one.name for one in facts.learners if not one.changed and not one.left)
    if not live:
        detail = f"none is live; silent: {named(silent)}" if silent else "none is there"
        advice = "start one: gradientmail learner RUN_URL --state-dir DIRECTORY"
        return Finding(name, FAILED, detail, advice, "no round will be closed")
    detail = f"{len(live)} live: {named(sorted(live))}"
    if silent:
        return Finding(
            name,
            WARNED,
            f"{detail}; no sign of life for {facts.observed_s:.0f} s: {named(silent)}",
            "start it again with its --state-dir, or leave it: it holds nobody up",
            f"rounds wait for it until it was silent for presence_s = "
            f"{facts.settings.presence_s:g} s, and then no more",
        )
    if (few := _too_few(facts)) is not None:
        quorum = f"{detail}; quorum = {facts.settings.quorum}"
        return Finding(name, WARNED, quorum, "start more learners", few)
    return Finding(name, PASSED, detail)


def _too_few(facts: RunFacts) -> str | None:
    """Return what follows where fewer than a quorum are there; None: they are enough."""
    settings = facts.settings
    if settings.exchange == "closer":
        waits = "every round waits for its timeout before it closes with what there is"
        return waits if len(facts.live) < settings.quorum else None
    graceful = "" if settings.grace_s is None else f" or waited grace_s = {settings.grace_s:g} s"
    waits = f"no round is mixed before so many have shown{graceful}"
    return waits if len(facts.learners) < settings.quorum else None


def unseen(facts: RunFacts) -> Finding:
    """Who exchanges with nobody leaves no trace."""
    told = f"exchange = {facts.settings.exchange!r}: learners write nothing here"
    return Finding("learners", PASSED, f"{told}, and cannot be seen; no closer is needed")


def posts(facts: RunFacts) -> Finding:
    """Without a closer, what learners post to each other must be fresh."""
    settings, versions = facts.settings, ", ".join(str(one.version) for one in facts.fragments)
    late = [f"{who} ({n} behind)" for who in sorted(facts.live) if (n := _behind(facts, who))]
    detail = (
        f"no closer is needed: learners mix over topology {settings.topology!r}; newest posts are "
        f"for versions {versions}"
    ) + (f", not yet by {named(late)}" if late else "")
    left = [who for who in sorted(facts.live) if _left_behind(facts, who)]
    if left:
        return Finding(
            "posts",
            WARNED,
            f"{detail}; the others no longer wait for {named(left)}",
            "nothing if it just came back; otherwise a larger grace_s, in a fork",
            "what it trained in the rounds that it missed is mixed with nobody's",
        )
    steps_s = settings.sync_every * max(
        (one.step_s for one in facts.learners if one.changed), default=0.0
    )
    moved = any(one.moved for one in facts.fragments)
    if not moved and 0.0 < 2 * steps_s < facts.observed_s:
        return Finding(
            "posts",
            WARNED,
            f"{detail}; none came in {facts.observed_s:.0f} s, in which there are steps for "
            f"{facts.observed_s / steps_s:.0f} rounds",
            "see the finding on learners, and the logs of those whose posts are not yet there",
            f"a round waits for a learner until it was silent for presence_s = "
            f"{settings.presence_s:g} s",
        )
    return Finding("posts", PASSED, detail)


def _behind(facts: RunFacts, who: str) -> int:
    """Return how many rounds a learner's newest post is behind others'; 0 before its first."""
    found = (one.version - one.posts[who] for one in facts.fragments if who in one.posts)
    return max(found, default=0)


def _left_behind(facts: RunFacts, who: str) -> bool:
    """Whether others are so far on that they went on without a learner."""
    return _behind(facts, who) > last_repeatable(0, keep_versions=facts.settings.keep_versions)


def rounds(facts: RunFacts) -> Finding:
    """Every fragment must go on."""
    stuck = [
        one for one in facts.fragments if not one.moved and one.open_s > overdue_s(facts, one)
    ]
    if not stuck:
        versions = ", ".join(str(one.version) for one in facts.fragments)
        return Finding("rounds", PASSED, f"no fragment is overdue; versions {versions}")
    return Finding(
        "rounds",
        FAILED,
        "; ".join(_stuck(facts, one) for one in stuck[:SHOWN]) + _more(stuck),
        "see the findings on closer and learners, and the log of the closer",
        "learners that wait for these versions train no further",
    )


def overdue_s(facts: RunFacts, fragment: FragmentFacts) -> float:
    """Return how long the next version may take with one takeover and one learner given up."""
    settings, estimates = facts.settings, fragment.estimates
    return (
        1.5 * settings.lease_s
        + 1.125 * settings.presence_s
        + (settings.grace_s or 0.0)
        + 2 * settings.sync_every * (estimates.step_s or 0.0)
        + estimates.timeout(settings.poll_s)
    )


def _stuck(facts: RunFacts, one: FragmentFacts) -> str:
    waiting = sorted(facts.live - one.heard)
    who = f"waiting for {named(waiting)}" if waiting else "every live learner was heard"
    return f"fragment {one.fragment} is at version {one.version} for {one.open_s:.0f} s, {who}"


def missing(facts: RunFacts) -> Finding:
    """What a version above the boundary needs must be there."""
    lost = [(one, *each) for one in facts.fragments for each in one.missing]
    if not lost:
        return Finding("payloads", PASSED, f"all there: {_size(facts.used)}, mail in use included")
    newest = [one.fragment for one, version, _ in lost if version == one.version]
    detail = ", ".join(f"{key} (version {version})" for _, version, key in lost[:SHOWN])
    advice = "restore them from a backup or a bucket version; see who or what deletes here"
    by_closer = facts.settings.exchange == "closer"
    if newest:
        nobody = "no closer goes on and no learner joins" if by_closer else "no learner joins"
        meaning = f"the newest version cannot be read: {nobody}"
        return Finding("payloads", FAILED, f"missing: {detail}{_more(lost)}", advice, meaning)
    meaning = (
        "learners that are behind jump to the newest version; verify cannot derive these"
        if by_closer
        else "a learner that joins takes what another posted, for as long as that is there"
    )
    return Finding("payloads", WARNED, f"missing: {detail}{_more(lost)}", advice, meaning)


def orphans(facts: RunFacts) -> Finding:
    """What nobody needs should not grow."""
    parts = [
        f"{_size(heap)} {what}"
        for heap, what in (
            (facts.sweepable, "that the next sweep deletes"),
            (facts.unused, "that no record names, of closers that lost or died"),
            (facts.foreign, "that are not the run's"),
        )
        if heap.objects
    ]
    detail = "; ".join(parts) or "none"
    if facts.settings.retain and facts.unused.size_bytes > facts.used.size_bytes:
        return Finding(
            "orphans",
            WARNED,
            detail,
            "fork the run into one without retain, when it need not be verified any more",
            "retain = true: nothing is ever deleted here, and more than half of this is unused",
        )
    if facts.foreign.objects:
        advice = "move them elsewhere, if they are not meant to be here"
        return Finding("orphans", WARNED, detail, advice, "the sweep never touches them")
    return Finding("orphans", PASSED, detail)


def rejections(facts: RunFacts) -> Finding:
    """Contributions that do not count have a reason."""
    reasons = [each for one in facts.fragments for each in one.rejected]
    if not reasons:
        return Finding("rejected", PASSED, "nothing in the newest rounds")
    told = "; ".join(f"{each.key}: {each.reason}" for each in reasons[:SHOWN])
    return Finding(
        "rejected",
        WARNED,
        f"{told}{_more(reasons)}",
        "repair or stop the learner that posts them",
        "these steps were trained for nothing",
    )


def clocks(facts: RunFacts) -> Finding:
    """No decision depends on a clock; S3 refuses one that is far off."""
    off = [one for one in facts.learners if one.changed and abs(one.ahead_s) > SUSPECT_S]
    if not off:
        return Finding("clocks", PASSED, "those of live learners agree with this machine's")
    told = (f"{one.name} is {abs(one.ahead_s):.0f} s {_side(one.ahead_s)}" for one in off[:SHOWN])
    far = any(abs(one.ahead_s) > REFUSED_S for one in off)
    meaning = "no decision reads a clock" + ("; S3 refuses requests that far off" if far else "")
    advice = "set the clocks (NTP), or this machine's"
    return Finding("clocks", WARNED, ", ".join(told) + _more(off), advice, meaning)


RULES: Mapping[str, Sequence[Rule]] = {
    "closer": (closer, learners, rounds, missing, orphans, rejections, clocks),
    "gossip": (learners, posts, missing, orphans, clocks),
    "nobody": (unseen, missing, orphans),
}
"""By how learners exchange."""

AFTER_THE_END: Sequence[Rule] = (end, missing, orphans)


# -- words ----------------------------------------------------------------------------------


def named(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are.

    >>> named(["ann", "bob", "cat", "dan", "eve"])
    'ann, bob, cat and 2 more'
    """
    return ", ".join(names[:SHOWN]) + _more(names)


def _more(things: Sequence[object]) -> str:
    return f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""


def _side(ahead_s: float) -> str:
    return "ahead" if ahead_s > 0 else "behind"


def _size(heap: Bytes) -> str:
    return f"{heap.objects} objects, {heap.size_bytes / 1e6:.1f} MB"


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the worst verdict of all."""
    verdicts = {finding.verdict for finding in findings}
    return next((each for each in (FAILED, WARNED) if each in verdicts), PASSED)
