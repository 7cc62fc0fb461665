"""Presets: each one is a run that works, with its paper's values."""

from typing import Any, get_args

import pytest

from gradientmail.algorithm import algorithm_of
from gradientmail.algorithms.alignment import ALIGNMENTS, Blend, Carry, Overwrite
from gradientmail.algorithms.gossip import Average, NoLoCo
from gradientmail.algorithms.merge import RadialDirectionalMean, WeightedMean
from gradientmail.algorithms.outer import (
    Adagrad,
    Adam,
    DelayedNesterov,
    HeavyBall,
    Nesterov,
    OuterOptimizer,
    Sgd,
    Yogi,
)
from gradientmail.algorithms.presets import PRESETS, preset
from gradientmail.algorithms.weights import Samples, TokensSquaredPerStep, Uniform
from gradientmail.codecs.precision import Precision
from gradientmail.config import RunSettings, resolve
from gradientmail.errors import SettingsError
from gradientmail.protocol.schedule import RoundSchedule
from gradientmail.protocol.topology import RandomPairs, Ring

every = pytest.mark.parametrize("name", PRESETS)


def settings_of(name: str, **changes: Any) -> RunSettings:
    return resolve(RunSettings, ("preset", preset(name)), ("run.toml", changes))


@every
def test_every_preset_is_a_whole_algorithm(name: str) -> None:
    settings = settings_of(name)
    assert settings.algorithm == name
    assert algorithm_of(settings).settings == settings


@every
def test_every_preset_gives_way_to_the_users_own_settings(name: str) -> None:
    changed = settings_of(name, sync_every=64, outer_lr=0.3)
    assert (changed.sync_every, changed.outer_lr) == (64, 0.3)
    assert changed.merge == settings_of(name).merge


def test_the_default_algorithm_is_a_preset() -> None:
    assert RunSettings().algorithm in PRESETS


def test_diloco_is_the_papers_but_for_the_size_of_its_outer_step() -> None:
    """arXiv 2311.08105: H = 500, outer Nesterov on the plain mean, all wait for all."""
    algorithm = algorithm_of(settings_of("diloco"))
    assert algorithm.schedule == RoundSchedule(500, fragments=1, in_flight=1, overlap_steps=0)
    assert algorithm.aggregator.outer == Nesterov(0.5, 0.5)
    assert algorithm.aggregator.merge == WeightedMean()
    assert algorithm.aggregator.weights == Uniform()
    assert algorithm.alignment == Overwrite()
    assert (algorithm.delta_dtype, algorithm.update_dtype) == (Precision.F32, None)
    assert algorithm.settings.grace_s is None


def test_streaming_diloco_is_the_papers_but_for_the_size_of_its_outer_step() -> None:
    """arXiv 2501.18512, 1B: alpha .5, tau 1, Nesterov, 4 bits, strided fragments, H = 30."""
    algorithm = algorithm_of(settings_of("streaming-diloco"))
    assert algorithm.schedule == RoundSchedule(30, fragments=8, in_flight=1, overlap_steps=1)
    assert algorithm.aggregator.outer == Nesterov(0.5, 0.5)
    assert algorithm.alignment == Blend(0.5)
    assert algorithm.plan == "strided"
    assert algorithm.delta_dtype is Precision.F4


def test_decoupled_diloco_is_the_papers() -> None:
    """arXiv 2604.21428: minimum quorum 1, a grace window, tokens^2/steps, radial-directional."""
    algorithm = algorithm_of(settings_of("decoupled-diloco"))
    assert algorithm.quorum == 1
    assert algorithm.settings.grace_s is not None
    assert algorithm.aggregator.weights == TokensSquaredPerStep()
    assert algorithm.aggregator.merge == RadialDirectionalMean()
    assert algorithm.aggregator.outer == Nesterov(0.25, 0.5), "as long a step as of a plain mean"
    assert algorithm.alignment == Carry()
    assert algorithm.schedule.overlap_steps is None, "nobody waits"


def test_local_sgd_is_plain_averaging_of_parameters() -> None:
    """arXiv 1805.09767."""
    algorithm = algorithm_of(settings_of("local-sgd"))
    assert algorithm.aggregator.outer == Sgd(1.0)
    assert (algorithm.aggregator.merge, algorithm.aggregator.weights) == (
        WeightedMean(),
        Uniform(),
    )
    assert algorithm.alignment == Overwrite()


def test_federated_presets_are_the_papers() -> None:
    """arXiv 1602.05629, 1812.06127, 1909.06335, 2003.00295."""
    outers: dict[str, OuterOptimizer] = {
        "fedavg": Sgd(1.0),
        "fedprox": Sgd(1.0),
        "fedavgm": HeavyBall(1.0, 0.9),
        "fedadagrad": Adagrad(lr=0.1, beta1=0.0, tau=1e-3),
        "fedadam": Adam(lr=0.1, beta1=0.9, tau=1e-3, beta2=0.99),
        "fedyogi": Yogi(lr=0.1, beta1=0.9, tau=1e-3, beta2=0.99),
    }
    for name, outer in outers.items():
        algorithm = algorithm_of(settings_of(name))
        assert algorithm.aggregator.outer == outer
        assert algorithm.aggregator.weights == Samples()
        assert algorithm.schedule.overlap_steps == 0
        assert algorithm.settings.grace_s is None
    assert settings_of("fedprox").proximal == 0.01
    assert settings_of("fedavg").proximal == 0.0


def test_decentralized_presets_need_no_closer() -> None:
    """arXiv 1705.09056 with local steps, 2506.10911."""
    gossip, noloco = algorithm_of(settings_of("gossip")), algorithm_of(settings_of("noloco"))
    assert (gossip.settings.exchange, noloco.settings.exchange) == ("gossip", "gossip")
    assert (gossip.topology, gossip.gossip) == (Ring(), Average())
    assert (noloco.topology, noloco.gossip) == (RandomPairs(), NoLoCo(0.7, 0.5, 1.0))
    assert gossip.alignment == Carry(), "what is trained while mixing is kept"
    assert algorithm_of(settings_of("local")).alone


def test_all_reduce_is_a_round_a_step() -> None:
    algorithm = algorithm_of(settings_of("all-reduce"))
    assert algorithm.schedule == RoundSchedule(1, fragments=1, in_flight=1, overlap_steps=0)
    assert algorithm.aggregator.clip_ratio is None, "nothing but the mean"


def test_an_unknown_algorithm_is_refused_naming_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"unknown algorithm 'dilocoo'; did you mean 'diloco'"):
        preset("dilocoo")


def test_every_name_an_alignment_takes_has_a_rule() -> None:
    assert set(get_args(RunSettings.__annotations__["alignment"])) == set(ALIGNMENTS)


def test_async_local_sgd_is_the_papers_but_for_the_size_of_its_outer_step() -> None:
    """arXiv 2401.09135: one arrival a version, delayed Nesterov, dynamic local steps."""
    algorithm = algorithm_of(settings_of("async-local-sgd"))
    assert algorithm.aggregator.outer == DelayedNesterov(0.5, 0.5, arrivals=4, early=0.0)
    assert (algorithm.quorum, algorithm.settings.grace_s) == (1, 0.0)
    assert algorithm.settings.local_steps == "dynamic"
    assert algorithm.alignment == Carry()
