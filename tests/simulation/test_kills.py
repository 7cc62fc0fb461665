import pytest

from gradientmail.simulation.kills import BASES, every_death, triple_deaths

WRITING = ("create", "put", "delete")


def test_a_death_at_any_writing_operation_does_no_harm(quiet):
    """All operations of both scenarios: ``scripts/simulate --kills``."""
    trials = list(every_death("pair", WRITING))
    wrong = [(trial, verdict.wrong) for trial in trials if (verdict := trial.judged()).wrong]
    assert not wrong
    assert {death.slot for trial in trials for death in trial.deaths} == {
        "init",
        "closer",
        "learner",
    }


@pytest.mark.parametrize("base", BASES)
def test_three_deaths_do_no_harm(base, quiet):
    for trial in triple_deaths(base, 6):
        assert len(trial.deaths) == 3
        assert not trial.judged().wrong, trial


def test_triple_deaths_are_the_same_each_time(quiet):
    first, second = (list(triple_deaths("pair", 20)) for _ in range(2))
    assert first == second
    assert len(set(first)) == 20
