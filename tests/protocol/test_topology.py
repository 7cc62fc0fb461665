import math
from fractions import Fraction

import pytest

from gradientmail.errors import SettingsError
from gradientmail.protocol.topology import TOPOLOGIES, mixing, neighbours

STANDING = [name for name in TOPOLOGIES.names() if name not in ("random-pairs", "graph")]
SIZES = [1, 2, 3, 4, 5, 8, 13]


def names(count):
    return [f"learner-{number:02d}" for number in range(count)]


def made(name, count):
    of = names(count)
    pairs = [(of[i], of[i + 1]) for i in range(count - 1)] + [(of[0], of[-1])]
    return TOPOLOGIES.make(name, {"pairs": pairs or [("a", "b")]} if name == "graph" else {})


def matrix(name, count, turn="run-1/0"):
    rows = mixing(made(name, count), names(count), turn)
    return [[rows[i].get(j, 0.0) for j in names(count)] for i in names(count)]


@pytest.mark.parametrize("name", TOPOLOGIES.names())
@pytest.mark.parametrize("count", SIZES)
def test_every_matrix_is_symmetric_and_doubly_stochastic(name, count):
    weights = matrix(name, count)
    assert all(value >= 0.0 for row in weights for value in row)
    for row, column in zip(weights, zip(*weights, strict=True), strict=True):
        assert math.fsum(row) == pytest.approx(1.0, abs=1e-12)
        assert math.fsum(column) == pytest.approx(1.0, abs=1e-12)
        assert list(row) == pytest.approx(list(column))


@pytest.mark.parametrize("name", [*STANDING, "graph"])
@pytest.mark.parametrize("count", SIZES)
def test_everyone_reaches_everyone(name, count):
    met = neighbours(made(name, count), names(count), "")
    reached, edge = {names(count)[0]}, {names(count)[0]}
    while edge:
        edge = {other for one in edge for other in met[one]} - reached
        reached |= edge
    assert reached == set(names(count))


def test_the_given_weights():
    third = float(Fraction(1, 3))
    assert matrix("ring", 5)[0] == pytest.approx([third, third, 0, 0, third])
    assert matrix("full", 4)[2] == [0.25] * 4
    star = matrix("star", 4)
    assert star[0] == [0.25] * 4
    assert star[3] == [0.25, 0.0, 0.0, 0.75]
    assert matrix("exponential", 8)[0] == pytest.approx(
        [1 / 6, 1 / 6, 1 / 6, 0, 1 / 6, 0, 1 / 6, 1 / 6]
    )
    graph = TOPOLOGIES.make("graph", {"pairs": [("a", "b"), ("b", "c")]})
    path = mixing(graph, ["a", "b", "c"], "")
    assert path["a"] == pytest.approx({"a": 2 / 3, "b": third})
    assert path["b"] == pytest.approx({"a": third, "b": third, "c": third})


def test_pairs_are_two_and_two_and_others_in_each_round():
    rounds = [neighbours(made("random-pairs", 7), names(7), f"run-1/{r}") for r in range(60)]
    for met in rounds:
        assert sorted(len(others) for others in met.values()) == [0, 1, 1, 1, 1, 1, 1]
    partners = {min(met["learner-03"], default=None) for met in rounds}
    assert partners == {*names(7), None} - {"learner-03"}
    assert matrix("random-pairs", 2)[0] == [0.5, 0.5]


@pytest.mark.parametrize("name", TOPOLOGIES.names())
def test_mixing_again_and_again_brings_all_to_the_mean(name):
    count = 6
    values = [float(number**2) for number in range(count)]
    mean = sum(values) / count
    for turn in range(200):
        weights = matrix(name, count, f"run-1/{turn}")
        values = [math.fsum(w * v for w, v in zip(row, values, strict=True)) for row in weights]
    assert values == pytest.approx([mean] * count, abs=1e-6)


def test_who_is_not_live_is_not_in_the_graph():
    topology = TOPOLOGIES.make("graph", {"pairs": [("a", "b"), ("b", "c")]})
    assert mixing(topology, ["a", "c"], "") == {"a": {"a": 1.0}, "c": {"c": 1.0}}


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("rin", {}, "did you mean 'ring'\\? known: exponential, full, graph, random-pairs, ring"),
        ("ring", {"hops": 2}, "it has no setting 'hops'"),
        ("graph", {}, "it needs the setting 'pairs'"),
    ],
)
def test_what_is_wrong_is_said(name, settings, said):
    with pytest.raises(SettingsError, match=said):
        TOPOLOGIES.make(name, settings)
