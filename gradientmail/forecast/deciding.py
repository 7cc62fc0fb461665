"""What a learner of a forecast asks the protocol: what is next, and what became of its mail."""

from collections.abc import Iterable

from gradientmail.forecast.ground import Ground
from gradientmail.forecast.local import Mail
from gradientmail.protocol.publishing import Publishing, Train
from gradientmail.protocol.recovery import Fate, Posted, fate
from gradientmail.protocol.schedule import RoundSchedule


def at_the_start(schedule: RoundSchedule) -> Publishing:
    """Return where a learner is that has trained nothing yet."""
    nothing = (0,) * schedule.fragments
    return Publishing(schedule=schedule, versions=nothing, anchored_at=nothing)


def fate_of(mail: Mail, versions: Iterable[int], ground: Ground) -> Fate:
    """Return what became of ``mail`` in these versions of its fragment, the newest last."""
    history = [
        ground.commit(mail.fragment, number).as_read_by(mail.learner, mail.base)
        for number in versions
    ]
    posted = Posted(key="", base=mail.base)
    return fate(mail.learner, posted, history, max_staleness=ground.settings.max_staleness)


def next_decision(publishing: Publishing, step: int, calling: frozenset[int]) -> int | None:
    """Return the first step after ``step`` at which something is to be done, if nothing arrives.

    What ``Publishing.decide`` says at each single step, without asking it at each.
    """
    schedule = publishing.schedule
    following = publishing.next_round()
    anchored_at = publishing.anchored_at[schedule.fragment_of(following)]
    due = step if following in calling else publishing.last_step + schedule.gap(following)
    candidates = [max(due, anchored_at + 1)]
    if schedule.overlap_steps is not None and publishing.in_flight:
        oldest = min(flight.at_step for flight in publishing.in_flight)
        candidates.append(oldest + schedule.overlap_steps)
    for candidate in sorted(max(one, step + 1) for one in candidates):
        if not isinstance(publishing.decide(candidate, calling), Train):
            return candidate
    return None
