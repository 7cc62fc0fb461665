"""When a round closes: the state machine, look by look."""

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.protocol.closing import Adopt, Close, Closing, Decision, Look, Wait

GRACE_S, TIMEOUT_S = 5.0, 30.0
DECOUPLED = Closing(quorum=2, grace_s=GRACE_S, timeout_s=TIMEOUT_S)
WAIT_FOR_ALL = Closing(quorum=1, grace_s=None, timeout_s=TIMEOUT_S)


def look(
    now: float,
    accepted: str = "",
    *,
    rejected: str = "",
    live: str = "abc",
    committed: bool = False,
) -> Look:
    """Return a look; learners are letters."""
    return Look(
        now=now,
        committed=committed,
        accepted=frozenset(accepted),
        rejected=frozenset(rejected),
        live=frozenset(live),
    )


def decisions(closing: Closing, looks: Iterable[Look]) -> list[Decision]:
    made = []
    for seen in looks:
        closing, decision = closing.observe(seen)
        made.append(decision)
    return made


def last(closing: Closing, *looks: Look) -> Decision:
    return decisions(closing, looks)[-1]


def close(learners: str) -> Close:
    return Close(frozenset(learners))


# -- collecting -----------------------------------------------------------------------------


def test_a_round_without_mail_stays_open_however_long() -> None:
    assert decisions(DECOUPLED, [look(0), look(1e6)]) == [Wait(), Wait()]


def test_below_quorum_it_waits_for_the_live_ones_not_heard() -> None:
    assert decisions(DECOUPLED, [look(0, "a"), look(1e6, "a")]) == [Wait(), Wait()]


def test_without_any_learner_there_is_nothing_to_close() -> None:
    assert decisions(DECOUPLED, [look(0, live=""), look(1e6, live="")]) == [Wait(), Wait()]
    assert (
        last(DECOUPLED, look(0, live="", rejected="a"), look(1e6, live="", rejected="a")) == Wait()
    )


# -- the grace window -----------------------------------------------------------------------


def test_the_quorum_opens_the_grace_window_and_calls_the_slow_ones() -> None:
    made = decisions(DECOUPLED, [look(0, "a"), look(10, "ab"), look(14.9, "ab"), look(15, "ab")])
    calling = Wait(until=15, calling=True)
    assert made == [Wait(), calling, calling, close("ab")]


def test_what_comes_within_the_window_counts() -> None:
    everyone = "abcd"
    looks = [
        look(0, "ab", live=everyone),
        look(4, "abc", live=everyone),
        look(5, "abc", live=everyone),
    ]
    assert last(DECOUPLED, *looks) == close("abc")


def test_the_window_starts_with_the_quorum_and_not_again_with_each_arrival() -> None:
    made = decisions(DECOUPLED, [look(0, "ab", live="abcd"), look(4, "abc", live="abcd")])
    assert made == [Wait(until=5, calling=True)] * 2


def test_every_live_learner_heard_closes_early() -> None:
    assert last(DECOUPLED, look(0, "ab"), look(1, "abc")) == close("abc")
    assert last(DECOUPLED, look(0, "ab", rejected="c")) == close("ab")


def test_a_learner_that_falls_silent_is_no_longer_waited_for() -> None:
    assert last(DECOUPLED, look(0, "ab"), look(1, "ab", live="ab")) == close("ab")


def test_contributions_of_the_dead_count() -> None:
    assert last(DECOUPLED, look(0, "ab", live="b")) == close("ab")
    assert last(DECOUPLED, look(0, "ab", live="")) == close("ab")


def test_no_grace_closes_at_the_quorum() -> None:
    at_once = Closing(quorum=2, grace_s=0.0, timeout_s=TIMEOUT_S)
    assert last(at_once, look(7, "ab")) == close("ab")


def test_an_endless_window_waits_for_every_live_learner_and_calls_nobody() -> None:
    """All wait for all: a slow one takes all its steps before it posts."""
    made = decisions(WAIT_FOR_ALL, [look(0, "a"), look(1e6, "ab"), look(2e6, "abc")])
    assert made == [Wait(), Wait(), close("abc")]


# -- below the quorum -----------------------------------------------------------------------


def test_every_live_learner_rejected_closes_an_empty_round() -> None:
    assert last(DECOUPLED, look(0, rejected="abc")) == close("")


def test_a_quorum_that_cannot_be_met_is_waited_for_only_until_the_timeout() -> None:
    made = decisions(
        DECOUPLED,
        [look(now, "a", live="a") for now in (0, 29.9, 30)],
    )
    assert made == [Wait(until=30), Wait(until=30), close("a")]


def test_a_newcomer_restarts_the_timeout() -> None:
    looks = [look(0, "a", live="a"), look(29, "a", live="ab"), look(31, "a", live="a")]
    assert decisions(DECOUPLED, looks) == [Wait(until=30), Wait(), Wait(until=61)]


def test_the_last_ones_flush_is_closed_after_they_have_left() -> None:
    looks = [look(0, "a", live=""), look(30, "a", live="")]
    assert decisions(DECOUPLED, looks) == [Wait(until=30), close("a")]
    assert last(WAIT_FOR_ALL, look(0, "a", live="")) == close("a")


# -- another closer -------------------------------------------------------------------------


@pytest.mark.parametrize("closing", [DECOUPLED, WAIT_FOR_ALL])
@pytest.mark.parametrize("accepted", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("rejected", ["", "c", "abc"])
@pytest.mark.parametrize("live", ["", "abc"])
def test_a_version_that_is_there_already_beats_everything(
    closing: Closing, accepted: str, rejected: str, live: str
) -> None:
    seen = look(1e6, accepted, rejected=rejected, live=live, committed=True)
    assert closing.observe(seen) == (closing, Adopt())


# -- whatever is seen -----------------------------------------------------------------------

learners = st.sets(st.sampled_from("abcd")).map(frozenset)


@st.composite
def histories(draw: st.DrawFn) -> list[Look]:
    """Looks in which mail only adds up; learners come and go."""
    now, accepted, rejected = 0.0, frozenset[str](), frozenset[str]()
    looks = []
    for _ in range(draw(st.integers(1, 12))):
        now += draw(st.sampled_from([0.0, 1.0, 4.0, 30.0]))
        accepted |= draw(learners)
        rejected = (rejected | draw(learners)) - accepted
        live = draw(learners)
        looks.append(
            Look(now=now, committed=False, accepted=accepted, rejected=rejected, live=live)
        )
    return looks


closings = st.builds(
    Closing,
    quorum=st.integers(1, 4),
    grace_s=st.none() | st.sampled_from([0.0, 5.0]),
    timeout_s=st.just(TIMEOUT_S),
)


def met_since(closing: Closing, looks: Sequence[Look]) -> float | None:
    return next((seen.now for seen in looks if len(seen.accepted) >= closing.quorum), None)


def unheard(seen: Look) -> frozenset[str]:
    return frozenset(seen.live - seen.accepted - seen.rejected)


def heard_for_s(looks: Sequence[Look]) -> float:
    """Return how long, up to the last look, every live learner has been heard."""
    since = now = looks[-1].now
    for seen in reversed(looks):
        if unheard(seen) or not (seen.live or seen.accepted):
            break
        since = seen.now
    return now - since


@settings(max_examples=200)
@given(closings, histories())
def test_a_round_never_closes_too_early(closing: Closing, looks: list[Look]) -> None:
    for index, decision in enumerate(decisions(closing, looks)):
        seen = looks[index]
        if not isinstance(decision, Close):
            continue
        assert decision.learners == seen.accepted, "exactly what was accepted"
        since = met_since(closing, looks[: index + 1])
        if since is None:
            assert not unheard(seen), "below the quorum only when every live learner was heard"
            assert not seen.accepted or heard_for_s(looks[: index + 1]) >= TIMEOUT_S
        else:
            over = closing.grace_s is not None and seen.now - since >= closing.grace_s
            assert over or not unheard(seen)


@settings(max_examples=200)
@given(closings, histories())
def test_a_round_never_stays_open_too_long(closing: Closing, looks: list[Look]) -> None:
    for index, decision in enumerate(decisions(closing, looks)):
        seen = looks[index]
        if not isinstance(decision, Wait):
            continue
        since = met_since(closing, looks[: index + 1])
        if since is not None:
            assert unheard(seen)
            assert closing.grace_s is None or seen.now < since + closing.grace_s
        elif not unheard(seen):
            assert seen.accepted or not seen.live, "none accepted: it would have closed, empty"
        assert decision.until is None or decision.until > seen.now


@settings(max_examples=100)
@given(closings, histories())
def test_it_calls_exactly_while_a_window_of_known_length_is_open(
    closing: Closing, looks: list[Look]
) -> None:
    for index, decision in enumerate(decisions(closing, looks)):
        if isinstance(decision, Wait):
            since = met_since(closing, looks[: index + 1])
            assert decision.calling == (since is not None and closing.grace_s is not None)


@settings(max_examples=100)
@given(closings, histories())
def test_equal_looks_give_equal_decisions(closing: Closing, looks: list[Look]) -> None:
    assert decisions(closing, looks) == decisions(closing, looks)
