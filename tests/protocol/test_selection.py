import pytest

from gradientmail.errors import SettingsError
from gradientmail.protocol.selection import SELECTIONS, clients

NAMES = [f"learner-{number}" for number in range(10)]
FLEET = {name: frozenset({"gpu"} if name.endswith(("1", "2")) else ()) for name in NAMES}


@pytest.mark.parametrize(
    ("fraction", "count", "expected"),
    [(0.3, 10, 3), (0.25, 10, 3), (0.24, 10, 2), (0.01, 10, 1), (1.0, 7, 7), (0.5, 1, 1)],
)
def test_a_fraction_is_rounded_half_up_and_at_least_one(fraction, count, expected):
    """max(1, floor(f N + 0.5))."""
    assert clients(fraction, count) == expected


def test_any_closer_picks_the_same_whatever_the_order_it_saw_them_in():
    pick = SELECTIONS.make("random", {"fraction": 0.3})
    chosen = pick.asked("run-1", 4, FLEET)
    assert chosen == pick.asked("run-1", 4, dict(reversed(FLEET.items())))
    assert chosen == {"learner-1", "learner-6", "learner-8"}


def test_rounds_and_runs_differ_and_everyone_comes_to_turn():
    pick = SELECTIONS.make("random", {"fraction": 0.3})
    of_rounds = [pick.asked("run-1", number, FLEET) for number in range(200)]
    assert len(set(of_rounds)) > 50
    assert pick.asked("run-2", 0, FLEET) != of_rounds[0]
    turns = {name: sum(name in chosen for chosen in of_rounds) for name in NAMES}
    assert min(turns.values()) > 35
    assert max(turns.values()) < 85


def test_when_one_falls_silent_the_next_in_rank_takes_its_place_and_no_other_changes():
    pick = SELECTIONS.make("random", {"fraction": 0.3})
    before = pick.asked("run-1", 4, FLEET)
    gone = min(before)
    after = pick.asked("run-1", 4, {name: FLEET[name] for name in NAMES if name != gone})
    assert before - {gone} < after
    assert len(after) == 3


def test_of_few_there_is_always_one():
    pick = SELECTIONS.make("random", {"fraction": 0.1})
    assert pick.asked("run-1", 0, {"ann": frozenset()}) == {"ann"}
    assert pick.asked("run-1", 0, {}) == frozenset()


def test_tags_must_all_be_there():
    assert SELECTIONS.make("tags", {"tags": ["gpu"]}).asked("r", 0, FLEET) == {
        "learner-1",
        "learner-2",
    }
    assert SELECTIONS.make("tags", {"tags": ["gpu", "eu"]}).asked("r", 0, FLEET) == frozenset()


def test_all_are_all():
    assert SELECTIONS.make("all", {}).asked("r", 0, FLEET) == set(NAMES)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("randm", {}, "unknown selection 'randm'; did you mean 'random'"),
        ("xyz", {}, "known: all, random, tags"),
        ("random", {}, "it needs the setting 'fraction'"),
        ("random", {"fraction": 0.0}, "> 0.0"),
        ("random", {"fraction": 0.3, "seed": 1}, "it has no setting 'seed'; known: fraction"),
        ("tags", {"tags": []}, "length >= 1"),
    ],
)
def test_what_is_wrong_is_said(name, settings, said):
    with pytest.raises(SettingsError, match=said):
        SELECTIONS.make(name, settings)
