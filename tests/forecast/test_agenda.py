from gradientmail.forecast.agenda import Agenda


def test_events_happen_in_time_and_then_in_the_order_they_were_noted() -> None:
    agenda, seen = Agenda(), []
    for instant, name in ((2.0, "c"), (1.0, "a"), (1.0, "b")):
        agenda.at(instant, seen.append, name)
    agenda.run(10.0)
    assert seen == ["a", "b", "c"]
    assert agenda.now == 10.0


def test_what_is_over_already_happens_at_once() -> None:
    agenda, seen = Agenda(), []
    agenda.at(5.0, lambda: agenda.at(1.0, lambda: seen.append(agenda.now)))
    agenda.run(10.0)
    assert seen == [5.0]


def test_nothing_happens_after_the_end_or_after_it_was_stopped() -> None:
    agenda, seen = Agenda(), []
    agenda.at(1.0, agenda.stop)
    agenda.at(2.0, seen.append, "late")
    agenda.run(10.0)
    assert not seen
    assert agenda.now == 1.0
