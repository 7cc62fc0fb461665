"""What every outer optimizer, merging rule, weight, schedule and guard must keep, by its name.

A new one is held to this list by being entered under its name.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from gradientmail.algorithm import algorithm_of
from gradientmail.algorithms.aggregator import PARAMS, Aggregator, FragmentState
from gradientmail.algorithms.guards import GUARDS
from gradientmail.algorithms.outer import OUTERS, Turn
from gradientmail.algorithms.rules import MERGES
from gradientmail.algorithms.schedules import SCHEDULES
from gradientmail.algorithms.weights import WEIGHTS
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.codecs.layout import layout
from gradientmail.config import RunSettings
from gradientmail.operations.verifying import verify_run
from gradientmail.run import Version
from tests.closer.bench import inline, make_bench
from tests.rounds.small import contribution, flat, tensors

LEARNERS = ("ann", "bob", "cid", "dan", "eve", "fay", "gus")
"""Enough for every rule as it is by default."""

OUTER: list[dict[str, Any]] = [
    *({"outer": name} for name in OUTERS.names()),
    {"outer": "adagrad", "outer_settings": {"beta1": 0.9}},
    {"outer": "delayed-nesterov", "outer_settings": {"arrivals": 2, "early": 0.25}},
    {"outer": "torch.optim.AdamW", "outer_lr": 0.1},
    {"outer": "torch.optim.NAdam", "outer_lr": 0.1},
    {"outer": "torch.optim.SGD", "outer_lr": 0.1, "outer_settings": {"momentum": 0.9}},
]
NEEDED: dict[str, dict[str, Any]] = {
    "linear": {"versions": 3},
    "cosine": {"versions": 3},
    "steps": {"every_versions": 1},
    "suppress": {"least_cosine": 0.5},
    "damp": {"most_divergence": 0.001},
}
MERGE: list[dict[str, Any]] = [{"merge": name} for name in MERGES.names()]
REST: list[dict[str, Any]] = [
    *({"weights": name, "max_staleness": 1} for name in WEIGHTS.names()),
    *(
        {"outer_schedule": name, "outer_schedule_settings": NEEDED.get(name, {})}
        for name in SCHEDULES.names()
    ),
    *({"guard": name, "guard_settings": NEEDED.get(name, {})} for name in GUARDS.names()),
    {"outer_clip_norm": 0.01},
]
EVERY = [*OUTER, *MERGE, *REST]


def named(settings: dict[str, Any]) -> str:
    return "-".join(str(value) for value in settings.values())


every = pytest.mark.parametrize("settings", EVERY, ids=named)
every_outer = pytest.mark.parametrize("settings", OUTER, ids=named)
every_merge = pytest.mark.parametrize("settings", MERGE, ids=named)


def aggregator(settings: dict[str, Any]) -> Aggregator:
    return algorithm_of(RunSettings(**{"quorum": len(LEARNERS), **settings})).aggregator


async def committed(scratch: Path, *order: str, rounds: int = 3, **settings: Any) -> Any:
    """Return a bench, and the versions of a run to which all post in ``order``, each its own."""
    bench = await make_bench(scratch, quorum=len(order), **settings)
    closer = FragmentCloser(bench.desk(), bench.run.origin(0))
    versions: list[Version] = []
    for number in range(rounds):
        for name in order:
            fill = float(LEARNERS.index(name) + number - 2)
            bench.rng.seed(f"{name} {number}")
            samples = 1 + ord(name[0])
            counted = {"tokens": 10 * samples, "samples": samples}
            await bench.post(name, closer.present, fill=fill, **counted)
        closing = closer.close_next(lambda: frozenset(order), lambda _: None)
        versions.append(await bench.while_time_passes(closing))
    return bench, versions


# -- through commits --------------------------------------------------------------------------


@every
async def test_its_state_lives_in_commits_so_that_any_closer_goes_on_from_them(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Each version derived from what is in the store alone is a restart before it."""
    bench, versions = await committed(tmp_path, *LEARNERS, **settings)
    assert [version.outer_steps for version in versions] == [1, 2, 3]
    verified = await verify_run(bench.store, bench.scratch / "verify", offload=inline)
    assert verified.faults == ()
    assert verified.fragments[0].derived == 3


@every
async def test_the_order_in_which_contributions_arrive_leaves_no_trace(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    _, versions = await committed(tmp_path / "one", *LEARNERS, **settings)
    _, others = await committed(tmp_path / "two", *reversed(LEARNERS), **settings)
    for version, other in zip(versions, others, strict=True):
        assert version.params.digest == other.params.digest
        assert (version.outer and version.outer.digest) == (other.outer and other.outer.digest)


@every_outer
@pytest.mark.parametrize(
    "codecs",
    [
        {"published": "BF16"},
        {"published": "F16", "uplink": "F16"},
        {"uplink": "I8", "downlink": "I4"},
        {"uplink": "F8_E4M3", "downlink": "BF16"},
    ],
    ids=named,
)
async def test_every_precision_is_derived_again(
    tmp_path: Path, settings: dict[str, Any], codecs: dict[str, Any]
) -> None:
    bench, _ = await committed(tmp_path, *LEARNERS[:3], rounds=2, **settings, **codecs)
    verified = await verify_run(bench.store, bench.scratch / "verify", offload=inline)
    assert (verified.faults, verified.fragments[0].derived) == ((), 2)


# -- in memory --------------------------------------------------------------------------------

TWO = layout([("a", 3), ("b", 2)], [("mean", 1)])
START = {"a": [1.0, -2.0, 3.0], "b": [0.5, 4.0], "mean": [1.0]}


def begun() -> FragmentState:
    return FragmentState(layout=TWO, version=0, sections={PARAMS: flat(TWO, START)})


def rounded(rule: Aggregator, state: FragmentState, *, b: bool) -> FragmentState:
    """Close a round in which seven moved ``a``, and ``b`` where that is asked for."""
    posts = [
        contribution(
            TWO,
            {
                "a": [0.1 * i, 0.2, -0.3 * i],
                "b": [0.1, 0.1 * i] if b else None,
                "mean": [0.5],
            },
            tokens=i,
        )
        for i in range(1, 8)
    ]
    return rule.close_round(state, posts).state


@every
def test_a_tensor_nobody_holds_keeps_its_value_and_its_state(settings: dict[str, Any]) -> None:
    rule = aggregator(settings)
    before = rounded(rule, begun(), b=True)
    after = rounded(rule, before, b=False)
    held = TWO.slots[1]
    own = slice(held.offset, held.offset + held.numel)
    for section, vector in after.sections.items():
        assert torch.equal(vector[own], before.sections[section][own]), section
    assert not torch.equal(after.sections[PARAMS], before.sections[PARAMS])


@every
def test_buffers_take_their_mean_whatever_the_rule(settings: dict[str, Any]) -> None:
    after = rounded(aggregator(settings), begun(), b=True)
    assert tensors(TWO, after.sections[PARAMS])["mean"] == pytest.approx([0.5], abs=1e-6)


@every_merge
def test_of_learners_that_agree_the_version_is_theirs(settings: dict[str, Any]) -> None:
    rule = aggregator({**settings, "outer": "sgd"})
    theirs = {"a": [0.25, -1.0, 2.0], "b": [1.5, 0.125], "mean": [0.5]}
    posts = [contribution(TWO, theirs, tokens=i + 1) for i in range(max(1, rule.merge.least))]
    after = rule.close_round(begun(), posts).state.sections[PARAMS]
    assert after.tolist() == pytest.approx((flat(TWO, START) - flat(TWO, theirs)).tolist())


@every
def test_one_learner_alone_with_a_plain_step_is_that_learner(settings: dict[str, Any]) -> None:
    rule = aggregator({**settings, "outer": "sgd", "outer_settings": {}, "outer_lr": 1.0})
    plain = {"outer_schedule", "outer_clip_norm", "guard"}
    if rule.merge.least > 1 or plain & settings.keys():
        pytest.skip("it is for more than one, or scales the step")
    theirs = {"a": [0.25, -1.0, 2.0], "b": [1.5, 0.125], "mean": [0.5]}
    after = rule.close_round(begun(), [contribution(TWO, theirs)]).state.sections[PARAMS]
    assert torch.equal(after, flat(TWO, START) - flat(TWO, theirs))


@every_merge
def test_what_weighs_nothing_contributes_nothing(settings: dict[str, Any]) -> None:
    """[6, 9] at weight 3 is [2, 3] each, whatever anything at weight 0 says."""
    merge = aggregator(settings).merge
    posts = [[2.0, 3.0]] * max(1, merge.least)
    weights = [3.0] * len(posts) + [0.0]
    rows = torch.tensor([*posts, [100.0, -7.0]])
    products = (rows.double() @ rows.double().T).tolist()
    norms = [[row.norm().item()] for row in rows]
    if hasattr(merge, "merger"):
        merger = merge.merger(weights, norms, lambda: products)
        assert merger(rows, range(len(rows))).tolist() == pytest.approx([2.0, 3.0])
        return
    found = merge.coefficients(["w"], weights, norms, lambda _: [3.605551275463989])
    assert found[-1] == [0.0]
    assert sum(row[0] for row in found) == pytest.approx(1.0)


@every_outer
def test_a_chunk_of_the_step_is_the_step_of_the_chunk(settings: dict[str, Any]) -> None:
    outer = aggregator(settings).outer
    generator = torch.Generator().manual_seed(1)
    theta, gradient, again = torch.randn(3, 8192, generator=generator)
    whole, state = outer.update(theta, gradient, outer.init(theta))
    whole, state = outer.update(whole, again, state, Turn(step=1))
    for part in (slice(0, 4096), slice(4096, 8192)):
        own, kept = outer.update(theta[part], gradient[part], outer.init(theta[part]))
        own, kept = outer.update(own, again[part], kept, Turn(step=1))
        assert torch.equal(own, whole[part])
        assert all(torch.equal(vector, state[name][part]) for name, vector in kept.items())


@every_outer
def test_nothing_it_is_given_is_changed(settings: dict[str, Any]) -> None:
    outer = aggregator(settings).outer
    theta, gradient = torch.ones(2, 64).unbind()
    state = outer.init(theta)
    before = {name: vector.clone() for name, vector in state.items()}
    outer.update(theta, gradient, state, Turn(step=1))
    assert torch.equal(theta, torch.ones(64))
    assert torch.equal(gradient, torch.ones(64))
    assert all(torch.equal(vector, before[name]) for name, vector in state.items())
