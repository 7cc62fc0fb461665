"""What a forecast found, as values; ``cli`` prints them, ``--json`` is them."""

import statistics
from collections.abc import Sequence

import msgspec

from gradientmail.forecast.closer import Closer
from gradientmail.forecast.fleet import HOUR_S, Fleet, Learners
from gradientmail.forecast.ground import Ground
from gradientmail.forecast.learner import Learner
from gradientmail.forecast.ledger import Account, Stored
from gradientmail.learner.presence import BEATS_PER_PRESENCE


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the store, and the bytes each way."""

    puts: int
    gets: int
    lists: int
    deletes: int
    up_bytes: int
    down_bytes: int

    @property
    def requests(self) -> int:
        """All requests."""
        return self.puts + self.gets + self.lists + self.deletes


class LearnerForecast(msgspec.Struct, frozen=True, kw_only=True):
    """One learner. Shares are of the time from its joining on, interruptions included.

    Attributes:
        utilisation: Share in steps that were used, or are on their way.
        carried: Share in steps of contributions that came too late for their round, and of which
            no later one was in time.
        wasted: Share in steps that were lost: to an interruption, or to an alignment that
            overwrites what was trained while the commit was on its way.
        waited: Share in which training waited for a commit.
        joining: Share in which it fetched what it needed to begin.
        away: Share in which it was interrupted.
        stale_steps: Steps trained, on average, between posting a fragment and aligning it.
        there_h: Hours it was there, which are those that are paid.
        rent: What it costs itself.
        store_cost: What its requests cost, and what it reads.
    """

    name: str
    group: str
    step_s: float
    steps: int
    utilisation: float
    carried: float
    wasted: float
    waited: float
    joining: float
    away: float
    posted: int
    used: int
    dropped: int
    interruptions: int
    stale_steps: float
    there_h: float
    rent: float
    store_cost: float
    traffic: Traffic


class CloserForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The closers together.

    Attributes:
        computing: Share of the time in which the one at work computes.
        receiving, sending: Share of the time in which its line is in use.
        absent: Share of the time in which nobody held the lease.
        terms: How often the lease was taken.
        rent: What they cost themselves.
        store_cost: What their requests cost, and what they read.
    """

    computing: float
    receiving: float
    sending: float
    absent: float
    terms: int
    rent: float
    store_cost: float
    traffic: Traffic


class Money(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs, in the currency of the prices given."""

    learners: float
    closers: float
    requests_and_egress: float
    storage: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.learners + self.closers + self.requests_and_egress + self.storage


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet with one set of settings.

    Attributes:
        name: What the settings are called.
        hours: How far it looks ahead.
        rounds: Closed, of all fragments together.
        round_s: Mean seconds from one version of a fragment to its next.
        between_s: Mean seconds from one round to the next, of whatever fragment.
        contributions: Mean number in a round.
        utilisation: Of the sum of all learners' speeds: the steps that were used or are on their
            way, of those that all could have taken from their joining on.
        carried, wasted, waited, joining, away: Shares of that sum, as for one learner.
        staleness: How many contributions were so many versions behind.
        stale_steps: Steps trained, on average, between posting and aligning.
        steps: Taken by all learners.
        cost_per_1000_steps: Money for a thousand steps that were not lost.
        events: Size of the computation.
    """

    name: str
    hours: float
    rounds: int
    round_s: float | None
    between_s: float | None
    contributions: float
    utilisation: float
    carried: float
    wasted: float
    waited: float
    joining: float
    away: float
    staleness: dict[int, int]
    stale_steps: float
    steps: int
    up_bytes_per_learner_hour: float
    down_bytes_per_learner_hour: float
    requests_per_learner_hour: float
    stored_bytes: int
    stored_peak_bytes: int
    money: Money
    cost_per_1000_steps: float
    closer: CloserForecast
    learners: tuple[LearnerForecast, ...]
    events: int


def results_of(
    *, name: str, fleet: Fleet, ground: Ground, learners: Sequence[Learner], closer: Closer
) -> Forecast:
    """Return what was counted, as shares and sums."""
    hours = ground.now / HOUR_S
    joined = [learner for learner in learners if learner.times.total > 0.0]
    each = tuple(_learner(learner, fleet, ground) for learner in joined)
    there_h = sum(one.there_h for one in each)
    speeds = sum(learner.times.total / learner.step_s for learner in joined)

    def of_speeds(seconds: Sequence[float]) -> float:
        took = sum(s / learner.step_s for s, learner in zip(seconds, joined, strict=True))
        return took / speeds if speeds else 0.0

    beats = sum(beats_of(learner, ground) for learner in joined)
    closers = _closer(closer, fleet, ground, beats)
    accounts = [closer.machine.account, *(learner.account for learner in joined)]
    money = _money(closers, each, accounts, fleet, ground.stored)
    useful_steps = sum(learner.times.useful / learner.step_s for learner in joined)
    used = sum(len(commit.used) for chain in ground.commits for commit in chain)
    traffic = [one.traffic for one in each]
    return Forecast(
        name=name,
        hours=hours,
        rounds=ground.rounds,
        round_s=statistics.fmean(closer.round_s) if closer.round_s else None,
        between_s=ground.now / ground.rounds if ground.rounds else None,
        contributions=_per(used, ground.rounds),
        utilisation=of_speeds([learner.times.useful for learner in joined]),
        carried=of_speeds([learner.times.carried for learner in joined]),
        wasted=of_speeds([learner.times.wasted for learner in joined]),
        waited=of_speeds([learner.times.waited for learner in joined]),
        joining=of_speeds([learner.times.joining for learner in joined]),
        away=of_speeds([learner.times.away for learner in joined]),
        staleness=dict(sorted(closer.staleness.items())),
        stale_steps=_mean_stale_steps(joined),
        steps=sum(learner.counts.steps for learner in joined),
        up_bytes_per_learner_hour=_per(sum(one.up_bytes for one in traffic), there_h),
        down_bytes_per_learner_hour=_per(sum(one.down_bytes for one in traffic), there_h),
        requests_per_learner_hour=_per(sum(one.requests for one in traffic), there_h),
        stored_bytes=ground.stored.size_bytes,
        stored_peak_bytes=ground.stored.peak_bytes,
        money=money,
        cost_per_1000_steps=_per(1000.0 * money.total, useful_steps),
        closer=closers,
        learners=each,
        events=ground.agenda.events,
    )


def _money(
    closers: CloserForecast,
    learners: Sequence[LearnerForecast],
    accounts: Sequence[Account],
    fleet: Fleet,
    stored: Stored,
) -> Money:
    prices = fleet.store.prices
    return Money(
        learners=sum(one.rent for one in learners),
        closers=closers.rent,
        requests_and_egress=sum(account.cost(prices) for account in accounts),
        storage=stored.cost(prices),
    )


def _learner(learner: Learner, fleet: Fleet, ground: Ground) -> LearnerForecast:
    times, counts, group = learner.times, learner.counts, learner.group
    _enter_presence(learner, ground)
    there_h = (times.total - times.away) / HOUR_S
    return LearnerForecast(
        name=learner.name,
        group=group.name,
        step_s=learner.step_s,
        steps=counts.steps,
        utilisation=times.useful / times.total,
        carried=times.carried / times.total,
        wasted=times.wasted / times.total,
        waited=times.waited / times.total,
        joining=times.joining / times.total,
        away=times.away / times.total,
        posted=counts.posted,
        used=counts.used,
        dropped=counts.dropped,
        interruptions=counts.interruptions,
        stale_steps=_mean_stale_steps([learner]),
        there_h=there_h,
        rent=there_h * group.price_per_hour,
        store_cost=learner.account.cost(fleet.store.prices),
        traffic=_traffic(learner.account),
    )


def beats_of(learner: Learner, ground: Ground) -> int:
    """Return how often a learner has been seen."""
    every_s = ground.settings.presence_s / BEATS_PER_PRESENCE
    return int((learner.times.trained + learner.times.waited) / every_s)


def _enter_presence(learner: Learner, ground: Ground) -> None:
    """Enter looks at the head, and beats: who else has our name, a stop, and being seen."""
    sizes, account, beats = ground.sizes, learner.account, beats_of(learner, ground)
    account.get(sizes.head, round(learner.looks))
    account.get(sizes.presence, beats)
    account.get(0, beats)
    account.put(sizes.presence, beats)


def _closer(closer: Closer, fleet: Fleet, ground: Ground, beats: int) -> CloserForecast:
    machine, group, elapsed_s = closer.machine, fleet.closer, ground.now or 1.0
    machine.account.get(ground.sizes.presence, beats)
    return CloserForecast(
        computing=min(1.0, machine.compute.busy_s / elapsed_s),
        receiving=min(1.0, machine.down.busy_s / elapsed_s),
        sending=min(1.0, machine.up.busy_s / elapsed_s),
        absent=closer.idle_s / elapsed_s,
        terms=closer.terms,
        rent=group.count * ground.now / HOUR_S * group.price_per_hour,
        store_cost=machine.account.cost(fleet.store.prices),
        traffic=_traffic(machine.account),
    )


def _traffic(account: Account) -> Traffic:
    return Traffic(
        puts=account.puts,
        gets=account.gets,
        lists=account.lists,
        deletes=account.deletes,
        up_bytes=account.up_bytes,
        down_bytes=account.down_bytes,
    )


def _mean_stale_steps(learners: Sequence[Learner]) -> float:
    aligned = sum(learner.counts.aligned for learner in learners)
    return _per(sum(learner.counts.stale_steps for learner in learners), aligned)


def _per(amount: float, of: float) -> float:
    return amount / of if of else 0.0


def grouped(forecast: Forecast, groups: Sequence[Learners]) -> list[list[LearnerForecast]]:
    """Return the learners of each group that came."""
    found = [[one for one in forecast.learners if one.group == group.name] for group in groups]
    return [members for members in found if members]
