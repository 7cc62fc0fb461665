"""When a learner publishes, waits and trains on; a learner here is one loop over its decisions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.protocol.publishing import (
    Decision,
    Hold,
    InFlight,
    Publish,
    Publishing,
    Train,
    oldest_open_round,
    open_rounds,
)
from gradientmail.protocol.schedule import RoundSchedule

GIVEN = [
    (100, 4, [25, 50, 75, 100, 125]),
    (10, 3, [3, 6, 10, 13, 16, 20]),
    (7, 3, [2, 4, 7, 9, 11, 14]),
    (5, 5, [1, 2, 3, 4, 5, 6]),
]


def joined(schedule: RoundSchedule, versions: tuple[int, ...] | None = None) -> Publishing:
    """Return a learner that has just joined at these versions, and not yet trained."""
    start = versions or (0,) * schedule.fragments
    return Publishing(schedule=schedule, versions=start, anchored_at=(0,) * schedule.fragments)


@dataclass
class Walk:
    """A learner that steps; its commits come when ``commit`` is called."""

    publishing: Publishing
    step: int = 0
    published: list[tuple[int, int]] = field(default_factory=list)

    def train(self, calling: frozenset[int] = frozenset()) -> Decision:
        """Take a step and publish all that is due; return what is decided then."""
        self.step += 1
        return self.settle(calling)

    def settle(self, calling: frozenset[int] = frozenset()) -> Decision:
        while isinstance(decision := self.publishing.decide(self.step, calling), Publish):
            self.published.append((decision.round_index, self.step))
            self.publishing = self.publishing.published(decision.round_index, self.step)
        return decision

    def commit(self, fragment: int, *, closed: int = 1, kept_steps: int = 0) -> None:
        """Align with the version that many rounds later."""
        version = self.publishing.versions[fragment] + closed
        self.publishing = self.publishing.aligned(fragment, version, self.step - kept_steps)

    @property
    def flying(self) -> list[int]:
        return [flight.round_index for flight in self.publishing.in_flight]


# -- the schedule ---------------------------------------------------------------------------


@pytest.mark.parametrize(("sync_every", "fragments", "steps"), GIVEN)
@pytest.mark.parametrize("overlap_steps", [0, 1, None])
def test_with_instant_commits_rounds_are_published_at_the_given_steps(
    sync_every: int, fragments: int, steps: list[int], overlap_steps: int | None
) -> None:
    walk = Walk(joined(RoundSchedule(sync_every, fragments, overlap_steps=overlap_steps)))
    while len(walk.published) < len(steps):
        walk.train()
        for round_index in walk.flying:
            walk.commit(round_index % fragments)
        assert walk.settle() == Train()
    assert walk.published == list(enumerate(steps))


def test_a_learner_that_joins_late_takes_the_oldest_open_round_after_its_gap() -> None:
    walk = Walk(joined(RoundSchedule(10, 3), versions=(5, 4, 4)))
    for _ in range(4):
        walk.train()
    assert walk.published == [(13, 3)]
    assert RoundSchedule(10, 3).gap(13) == 3


# -- overlap and rounds in flight -----------------------------------------------------------


@pytest.mark.parametrize("overlap_steps", [0, 1, 3])
def test_it_trains_overlap_steps_past_publishing_and_then_holds(overlap_steps: int) -> None:
    walk = Walk(joined(RoundSchedule(10, 2, overlap_steps=overlap_steps)))
    decisions = [walk.train() for _ in range(5 + overlap_steps)]
    assert walk.published == [(0, 5)]
    assert decisions == [Train()] * (4 + overlap_steps) + [Hold()]
    assert walk.settle() == Hold(), "for as long as nothing comes"
    walk.commit(0)
    assert walk.settle() == Train()


def test_without_overlap_it_never_holds_and_never_exceeds_its_rounds_in_flight() -> None:
    walk = Walk(joined(RoundSchedule(12, 4, in_flight=2, overlap_steps=None)))
    assert [walk.train() for _ in range(100)] == [Train()] * 100
    assert walk.published == [(0, 3), (1, 6)]
    walk.commit(0)
    walk.settle()
    assert walk.published[2:] == [(2, 100)], "it was due long ago"


def test_the_oldest_round_in_flight_is_the_one_it_holds_for() -> None:
    walk = Walk(joined(RoundSchedule(4, 4, in_flight=4, overlap_steps=2)))
    assert [walk.train() for _ in range(3)] == [Train(), Train(), Hold()]
    assert walk.flying == [0, 1, 2]
    walk.commit(1)
    assert walk.settle() == Hold(), "round 0 still waits"
    walk.commit(0)
    assert walk.settle() == Train(), "round 2 was published just now"


def test_a_later_round_of_a_fragment_does_not_overtake_one_in_flight() -> None:
    """Rounds 0 and 1 fly; 1 lands first. Fragment 1 waits its turn: 2 comes before 3."""
    walk = Walk(joined(RoundSchedule(4, 2, in_flight=2, overlap_steps=None)))
    for _ in range(4):
        walk.train()
    walk.commit(1)
    for _ in range(10):
        walk.train()
    assert walk.publishing.next_round() == 2
    assert walk.flying == [0]
    walk.commit(0)
    walk.train()
    assert [round_index for round_index, _ in walk.published] == [0, 1, 2]


# -- slower than the others -----------------------------------------------------------------


def test_a_slow_learner_skips_rounds_that_others_closed() -> None:
    walk = Walk(joined(RoundSchedule(4, 2)))
    walk.train()
    for fragment in (0, 1, 0):
        walk.commit(fragment)
    assert walk.publishing.next_round() == 3
    walk.train()
    assert walk.published == [(3, 2)]


def test_a_fragment_that_is_far_ahead_is_left_until_the_others_catch_up() -> None:
    publishing = joined(RoundSchedule(30, 3), versions=(10**9, 2, 5))
    assert publishing.next_round() == 7, "found without counting there"
    caught_up = publishing.aligned(1, 5, 0)
    assert caught_up.next_round() == 16


def test_calling_makes_a_round_due_at_once_if_there_is_a_step_to_post() -> None:
    walk = Walk(joined(RoundSchedule(100, 2)))
    assert walk.settle(frozenset({0})) == Train(), "nothing was trained yet"
    assert walk.train(frozenset({1})) == Train(), "another round is called"
    walk.train(frozenset({0}))
    assert walk.published == [(0, 2)]


def test_a_called_learner_reaches_every_fragment() -> None:
    """It takes 1 step where the others take 20, and has its say in every round all the same."""
    walk = Walk(joined(RoundSchedule(40, 2)))
    for round_index in range(6):
        walk.train(frozenset({round_index}))
        walk.commit(round_index % 2)
    assert walk.published == [(r, r + 1) for r in range(6)]


def test_steps_that_an_alignment_kept_count_as_steps_to_post() -> None:
    walk = Walk(joined(RoundSchedule(1, 1)))
    walk.train()
    walk.train()
    walk.commit(0, kept_steps=1)
    assert walk.settle() == Train(), "not due: its gap is one step after the last"
    walk.settle(frozenset({1}))
    assert walk.published == [(0, 1), (1, 2)]


# -- starting over --------------------------------------------------------------------------


def test_a_contribution_that_could_not_be_posted_is_made_anew() -> None:
    """Were its round passed over, a learner alone would wait for it for ever."""
    walk = Walk(joined(RoundSchedule(3, 1, overlap_steps=0)))
    for _ in range(3):
        walk.train()
    assert (walk.published, walk.settle()) == ([(0, 3)], Hold())
    walk.publishing = walk.publishing.withdrawn(0).reanchored(walk.step)
    assert walk.settle() == Train()
    for _ in range(3):
        walk.train()
    assert walk.published == [(0, 3), (0, 6)]


# -- whatever happens -----------------------------------------------------------------------


@st.composite
def schedules(draw: st.DrawFn) -> RoundSchedule:
    fragments = draw(st.integers(1, 4))
    return RoundSchedule(
        draw(st.integers(fragments, 12)),
        fragments,
        in_flight=draw(st.integers(1, fragments)),
        overlap_steps=draw(st.none() | st.integers(0, 4)),
    )


def adventures(walk: Walk, draw: Callable[[st.SearchStrategy[int]], int]) -> Iterator[Decision]:
    """Train while it may; commits of any fragment come at any time, some rounds are called."""
    schedule = walk.publishing.schedule
    for _ in range(40):
        fate = draw(st.integers(0, 9))
        if fate < 3:
            kept = draw(st.integers(0, 2))
            walk.commit(draw(st.integers(0, schedule.fragments - 1)), kept_steps=kept)
        opened = open_rounds(schedule, walk.publishing.versions)
        calling = frozenset({draw(st.sampled_from(opened))}) if fate == 3 else frozenset()
        held = isinstance(walk.settle(calling), Hold)
        yield walk.settle(calling) if held else walk.train(calling)


@settings(max_examples=100)
@given(schedules(), st.data())
def test_the_promises_hold_whatever_happens(schedule: RoundSchedule, data: st.DataObject) -> None:
    walk = Walk(joined(schedule))
    contributions: set[tuple[int, int]] = set()
    seen = 0
    for decision in adventures(walk, data.draw):
        for round_index, _ in walk.published[seen:]:
            target = round_index % schedule.fragments, schedule.version_after(round_index) - 1
            assert target not in contributions, "never two against one base"
            contributions.add(target)
        seen = len(walk.published)
        assert len(walk.flying) <= schedule.in_flight
        assert len({r % schedule.fragments for r in walk.flying}) == len(walk.flying)
        if schedule.overlap_steps is None:
            assert not isinstance(decision, Hold)
        else:
            for flight in walk.publishing.in_flight:
                assert walk.step - flight.at_step <= schedule.overlap_steps
        if isinstance(decision, Hold):
            assert walk.flying, "it only ever waits for rounds of its own"


@settings(max_examples=100)
@given(schedules(), st.data())
def test_the_next_round_is_the_designs(schedule: RoundSchedule, data: st.DataObject) -> None:
    """``max(last published + 1, oldest open round)``, past rounds that others closed."""
    walk = Walk(joined(schedule))
    for _ in adventures(walk, data.draw):
        last = max((round_index for round_index, _ in walk.published), default=-1)
        versions = walk.publishing.versions
        expected = max(last + 1, oldest_open_round(schedule, versions))
        while schedule.version_after(expected) <= versions[expected % schedule.fragments]:
            expected += 1
        assert walk.publishing.next_round() == expected


@settings(max_examples=50)
@given(schedules(), st.data())
def test_a_learner_with_nothing_in_flight_publishes_within_a_cycle(
    schedule: RoundSchedule, data: st.DataObject
) -> None:
    walk = Walk(joined(schedule))
    for _ in adventures(walk, data.draw):
        pass
    for round_index in walk.flying:
        walk.commit(round_index % schedule.fragments)
    before = len(walk.published)
    for _ in range(schedule.sync_every):
        walk.train()
    assert len(walk.published) > before


# -- small parts ----------------------------------------------------------------------------


def test_open_rounds_are_one_after_each_fragments_version() -> None:
    schedule = RoundSchedule(30, 3)
    assert open_rounds(schedule, (2, 0, 1)) == [6, 1, 5]
    assert oldest_open_round(schedule, (2, 0, 1)) == 1


def test_publishing_and_aligning_leave_the_state_before_as_it_was() -> None:
    before = joined(RoundSchedule(4, 2))
    after = before.published(0, 2)
    assert before.in_flight == ()
    assert after.in_flight == (InFlight(round_index=0, at_step=2),)
    assert after.last_step == 2
    assert after.aligned(0, 1, 3).versions == (1, 0)
    assert after.aligned(0, 1, 3).anchored_at == (3, 0)
    assert after.versions == (0, 0)


def test_a_round_that_asks_for_others_is_sat_out() -> None:
    publishing = Publishing(
        schedule=RoundSchedule(4, 1, overlap_steps=0), versions=(0,), anchored_at=(0,)
    )
    assert publishing.decide(3, asked=frozenset()) == Train()
    assert publishing.decide(4, asked=frozenset()) == Hold()
    assert publishing.decide(4, asked=frozenset({1})) == Hold()
    assert publishing.decide(4, asked=frozenset({0})) == Publish(0)
    assert publishing.decide(4, asked=None) == Publish(0)


def test_after_sitting_out_the_next_round_is_a_whole_gap_away() -> None:
    publishing = Publishing(
        schedule=RoundSchedule(4, 1, overlap_steps=0), versions=(0,), anchored_at=(0,)
    )
    following = publishing.sat_out(4).aligned(0, 1, 4)
    assert following.decide(7, asked=frozenset({1})) == Train()
    assert following.decide(8, asked=frozenset({1})) == Publish(1)
