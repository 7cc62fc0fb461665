"""A run in which parts of the model have settings of their own, from init to the last version."""

import random
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradientmail as gm
from gradientmail.algorithms.outer import Nesterov, Sgd
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.operations.creating import create_run
from gradientmail.operations.verifying import verify_run
from gradientmail.run import Run, open_run
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.clock import ManualClock
from tests.closer.bench import EVERYONE, Bench, inline


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(8, 4)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm": nn.BatchNorm1d(4), "mlp": nn.Linear(4, 4)}) for _ in range(2)
        )
        self.head = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.wte(x)
        for block in self.blocks:
            hidden = hidden + block["mlp"](block["norm"](hidden))
        logits: Tensor = self.head(hidden)
        return logits


async def created(**settings: Any) -> tuple[MemoryStore, Run]:
    store = MemoryStore()
    torch.manual_seed(0)
    chosen = RunSettings(**{"poll_s": 1.0, "sync_every": 10, **settings})
    await create_run(store, Model(), chosen, clock=ManualClock(1000.0), rng=random.Random(1))
    return store, await open_run(store)


MODULES = {
    "wte": {"outer": "sgd", "outer_lr": 1.0, "uplink": "I8", "downlink": "I8"},
    "blocks.*.norm": {"exchange": "nobody"},
}


async def test_no_fragment_mixes_two_modules_and_the_local_one_is_in_none() -> None:
    _, run = await created(fragments=3, modules=MODULES)
    dealt = [[entry.name for entry in one.entries] for one in run.manifest.fragments]
    assert dealt[0] == ["wte.weight"]
    assert {name.split(".")[0] for names in dealt[1:] for name in names} == {"blocks", "head"}
    assert not any("norm" in name for names in dealt for name in names)
    assert [own.aggregator.outer for own in run.algorithms] == [Sgd(1.0), Nesterov(), Nesterov()]
    local = {spec.name for spec in run.manifest.tensors if not spec.trainable}
    assert {name for name in local if "num_batches" not in name} == {
        f"blocks.{block}.norm.{kind}"
        for block in range(2)
        for kind in ("weight", "bias", "running_mean", "running_var")
    }


@pytest.mark.parametrize("plan", ["bytes", "strided"])
async def test_larger_modules_get_more_fragments(plan: str) -> None:
    _, run = await created(fragments=3, plan=plan, modules={"wte": {"outer": "sgd"}})
    names = [{entry.name.split(".")[0] for entry in one.entries} for one in run.manifest.fragments]
    assert names[0] == {"wte"}
    assert all("wte" not in own for own in names[1:])


async def test_every_module_closes_by_its_own_rule_and_is_derived_again(tmp_path: Path) -> None:
    store, run = await created(fragments=2, modules=MODULES, retain=True)
    bench = Bench(store, ManualClock(1000.0), random.Random(1), run, tmp_path)
    for p, own in enumerate(run.manifest.fragments):
        closer = FragmentCloser(bench.desk(f"closer-{p}"), run.origin(p))
        for _ in range(2):
            for name in sorted(EVERYONE):
                key, data = contribution(bench, name, p, closer)
                await store.put(key, [data])
            closing = closer.close_next(lambda: EVERYONE, lambda _: None)
            version = await bench.while_time_passes(closing)
        roles = set(version.payloads)
        assert roles == ({"params", "outer", "update"} if p == 0 else {"params", "outer"}), own
    verified = await verify_run(store, tmp_path / "verify", offload=inline)
    assert verified.faults == ()
    assert [one.derived for one in verified.fragments] == [2, 2]


def contribution(bench: Bench, name: str, p: int, closer: FragmentCloser) -> tuple[str, bytes]:
    """Return a contribution in the codec of the fragment's module."""
    algorithm = bench.run.algorithms[p]
    run = Run(
        mailbox=bench.run.mailbox,
        manifest=bench.run.manifest,
        digest=bench.run.digest,
        algorithm=algorithm,
        layouts=bench.run.layouts,
    )
    own = Bench(bench.store, bench.clock, bench.rng, run, bench.scratch)
    return own.contribution(name, closer.present)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"modules": {"wpe": {}}}, r"modules.wpe: it is the nearest prefix of no tensor"),
        ({"modules": MODULES}, "2 parts with settings of their own.* at least 2"),
        (
            {"modules": {"wte": {"merge": "krum"}}, "fragments": 2},
            "quorum = 1, but merge = 'krum'",
        ),
        ({"modules": {"*": {"exchange": "nobody"}}}, "no trainable parameter that is not kept"),
    ],
)
async def test_what_cannot_be_is_refused_at_init(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        await created(**settings)


def test_learners_share_the_rest_and_keep_their_own_norms(tmp_path: Path) -> None:
    url = str(tmp_path / "run")
    torch.manual_seed(0)
    quick = {"poll_s": 0.02, "presence_s": 2.0, "lease_s": 2.0, "sync_every": 4}
    modules = {"blocks.*.norm": {"exchange": "nobody"}, "wte": {"uplink": "I8"}}
    gm.init(
        url,
        Model(),
        algorithm="local-sgd",
        fragments=2,
        stop_after_rounds=4,
        quorum=2,
        modules=modules,
        **quick,
    )
    closer = threading.Thread(target=gm.Closer(url).run, kwargs={"until_done": True})
    models = {name: Model() for name in ("ann", "bob")}
    learners = [threading.Thread(target=train, args=(url, *one)) for one in models.items()]
    for thread in (closer, *learners):
        thread.start()
    for thread in (*learners, closer):
        thread.join(60.0)
    ann, bob = (model.state_dict() for model in models.values())
    same = {name for name, value in ann.items() if torch.equal(value, bob[name])}
    last = {name for name in ann if "norm" not in name and "wte" not in name}
    assert last <= same, "the fragment that was closed last"
    assert not any("norm.weight" in name for name in same)


def train(url: str, name: str, model: Model) -> None:
    generator = torch.Generator().manual_seed(ord(name[0]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with gm.Learner(url, model, name=name) as learner:
        while not learner.done:
            x = torch.randint(0, 8, (16,), generator=generator)
            loss = nn.functional.cross_entropy(model(x), (x * ord(name[0])) % 8)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            learner.step(tokens=len(x))
