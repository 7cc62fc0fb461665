from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.forecast.deciding import next_decision
from gradientmail.protocol.publishing import InFlight, Publishing, Train
from gradientmail.protocol.schedule import RoundSchedule


@st.composite
def positions(draw: st.DrawFn) -> tuple[Publishing, int, frozenset[int]]:
    fragments = draw(st.integers(1, 4))
    schedule = RoundSchedule(
        draw(st.integers(fragments, 12)),
        fragments,
        draw(st.integers(1, fragments)),
        draw(st.none() | st.integers(0, 15)),
    )
    versions = tuple(draw(st.integers(0, 3)) for _ in range(fragments))
    step = draw(st.integers(0, 60))
    anchored = tuple(draw(st.integers(0, step)) for _ in range(fragments))
    flying = draw(st.sets(st.integers(0, fragments - 1), max_size=schedule.in_flight))
    publishing = Publishing(
        schedule=schedule,
        versions=versions,
        anchored_at=anchored,
        last_step=draw(st.integers(0, step)),
        in_flight=tuple(
            InFlight(
                round_index=schedule.round_of(p, versions[p] + 1),
                at_step=draw(st.integers(0, step)),
            )
            for p in sorted(flying)
        ),
    )
    calling = draw(st.sets(st.integers(0, 16), max_size=3))
    return publishing, step, frozenset(calling)


@given(positions())
@settings(max_examples=300, deadline=None)
def test_the_next_decision_is_the_one_found_by_asking_at_every_step(
    position: tuple[Publishing, int, frozenset[int]],
) -> None:
    publishing, step, calling = position
    asked = (
        later
        for later in range(step + 1, step + 100)
        if not isinstance(publishing.decide(later, calling), Train)
    )
    assert next_decision(publishing, step, calling) == next(asked, None)
