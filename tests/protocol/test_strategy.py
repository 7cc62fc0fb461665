"""Strategy documents: what each stands for, and that what is not built is refused by name."""

import json
from typing import Any

import pytest

from gradientmail.algorithm import algorithm_of
from gradientmail.algorithms.outer import Adagrad, Adam, HeavyBall, Yogi
from gradientmail.algorithms.presets import preset
from gradientmail.config import RunSettings, resolve
from gradientmail.errors import SettingsError
from gradientmail.protocol.strategy import strategy_settings

FEDERATED = {"type": "Federated", "num_clients": 10, "rounds": 50}


def run(document: dict[str, Any]) -> RunSettings:
    """Return the whole settings of a run by a document, which must be an algorithm."""
    found = strategy_settings(json.dumps(document))
    settings = resolve(
        RunSettings, ("preset", preset(found["algorithm"])), ("strategy FILE", found)
    )
    algorithm_of(settings)
    return settings


def test_the_given_document_is_fedprox_of_three_of_ten() -> None:
    settings = run(
        {
            **FEDERATED,
            "aggregation": {"method": "FedProx", "mu": 0.01},
            "client_selection": {"method": "Random", "fraction": 0.3},
        }
    )
    assert (settings.algorithm, settings.proximal) == ("fedprox", 0.01)
    assert (settings.selection, settings.selection_settings) == ("random", {"fraction": 0.3})
    assert (settings.quorum, settings.stop_after_rounds) == (3, 50)
    assert (settings.outer, settings.outer_lr, settings.weights) == ("sgd", 1.0, "samples")


@pytest.mark.parametrize(
    ("method", "outer"),
    [
        ({"method": "FedAvgM", "momentum": 0.8}, HeavyBall(lr=1.0, momentum=0.8)),
        ({"method": "FedAdam", "learning_rate": 0.05}, Adam(lr=0.05)),
        ({"method": "FedYogi", "tau": 0.01}, Yogi(tau=0.01)),
        ({"method": "FedAdagrad"}, Adagrad()),
    ],
)
def test_a_federated_optimizer_is_the_outer_one(method: dict[str, Any], outer: object) -> None:
    settings = run({**FEDERATED, "aggregation": method})
    assert algorithm_of(settings).aggregator.outer == outer
    assert settings.quorum == 10


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (FEDERATED, {"algorithm": "fedavg", "selection": "all", "quorum": 10}),
        (
            {**FEDERATED, "client_selection": {"method": "Tags", "tags": ["gpu"]}},
            {"selection": "tags", "selection_settings": {"tags": ["gpu"]}},
        ),
        (
            {**FEDERATED, "aggregation": {"method": "Krum", "byzantine": 2}},
            {"merge": "krum", "merge_settings": {"byzantine": 2}},
        ),
        ({**FEDERATED, "aggregation": {"method": "TrimmedMean"}}, {"merge": "trimmed-mean"}),
        ({**FEDERATED, "aggregation": {"method": "Median"}}, {"merge": "coordinate-median"}),
        ({"type": "Local"}, {"exchange": "nobody"}),
        (
            {"type": "DataParallel", "num_workers": 4, "sync": {"method": "AllReduce"}},
            {"algorithm": "all-reduce", "sync_every": 1, "fragments": 1, "quorum": 4},
        ),
        (
            {"type": "DataParallel", "num_workers": 4, "sync": {"method": "ParameterServer"}},
            {"quorum": 1, "grace_s": 0.0, "max_staleness": 4, "weights": "tokens-by-staleness"},
        ),
        (
            {
                "type": "DataParallel",
                "sync": {"method": "Decentralized", "topology": "RandomPairs"},
            },
            {"exchange": "gossip", "topology": "random-pairs"},
        ),
        (
            {"type": "Custom", "name": "diloco", "settings": {"sync_every": 50}},
            {"algorithm": "diloco", "sync_every": 50, "outer": "nesterov"},
        ),
    ],
)
def test_a_document_stands_for_settings(
    document: dict[str, Any], expected: dict[str, Any]
) -> None:
    settings = run(document)
    assert {key: getattr(settings, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"type": "Pipeline"}, "type = 'Pipeline' is not built here; there are: Custom, DataPara"),
        (
            {**FEDERATED, "aggregation": {"method": "FedNova"}},
            r"aggregation.method = 'FedNova' is not built here; there are: FedAdagrad, FedAdam",
        ),
        (
            {**FEDERATED, "client_selection": {"method": "PowerOfChoice"}},
            r"client_selection.method = 'PowerOfChoice' is not built here; there are: All, Random",
        ),
        (
            {"type": "DataParallel", "sync": {"method": "Ring"}},
            r"sync.method = 'Ring' is not built here; there are: AllReduce, Decentralized",
        ),
        (
            {**FEDERATED, "secure_aggregation": True},
            "it has no field 'secure_aggregation'.* known: aggregation, client_selection, num_cl",
        ),
        (
            {**FEDERATED, "client_selection": {"method": "Random", "frction": 0.3}},
            r"client_selection: it has no field 'frction'; did you mean 'fraction'\?",
        ),
        ({"type": "Local", "rounds": 3}, "it has no field 'rounds'$"),
        ({**FEDERATED, "rounds": 0}, "rounds: Expected `int` >= 1"),
        ({"type": "Federated", "rounds": 1}, "missing required field `num_clients`"),
        ({"type": "Custom", "name": "nosuch"}, "unknown algorithm 'nosuch'"),
        (
            {"type": "DataParallel", "sync": {"method": "Decentralized", "topology": "Tree"}},
            "tree",
        ),
    ],
)
def test_what_is_not_built_is_refused_by_name(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        run(document)


def test_what_is_no_json_is_said() -> None:
    with pytest.raises(SettingsError, match="it is no JSON"):
        strategy_settings("{")
