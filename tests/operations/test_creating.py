"""A run is there or it is not, and version 0 is the model, to the bit."""

import math

import pytest
import torch
from torch import nn

from gradientmail.algorithms.aggregator import PARAMS
from gradientmail.codecs.payload import METADATA_LIMIT_BYTES
from gradientmail.codecs.streaming import decoded
from gradientmail.config import RunSettings
from gradientmail.errors import RunExistsError, SettingsError
from gradientmail.learner.parameters import FragmentTensors, describe, exchanged
from gradientmail.operations.creating import MAX_TENSORS, plan_tensors
from gradientmail.records import keys
from gradientmail.records.canonical import digest_of
from gradientmail.records.manifest import TensorSpec
from gradientmail.run import open_run
from gradientmail.store.base import Created
from gradientmail.store.memory import MemoryStore
from tests.operations.models import create, small_model


async def keys_in(store: MemoryStore) -> list[str]:
    return [entry.key for entry in await store.list("")]


async def test_version_0_holds_the_model_and_the_manifest_says_so() -> None:
    store, model = MemoryStore(), small_model()

    manifest = await create(store, model, fragments=2)

    run = await open_run(store)
    assert run.manifest == manifest
    assert (manifest.program, manifest.tensors) == ("m:f", describe(model, buffers="averaged"))
    for fragment, layout in enumerate(run.layouts):
        ref = run.origin(fragment).params
        data = await store.read(ref.key)
        assert data is not None
        assert (len(data), digest_of(data)) == (ref.size_bytes, ref.digest)
        flat = decoded(data, run.algorithm.params_format(layout.numel), section=PARAMS)
        assert torch.equal(flat, FragmentTensors(model, layout).gather())


async def test_buffers_go_where_the_parameters_of_their_module_go() -> None:
    manifest = await create(MemoryStore(), small_model(), fragments=3)

    dealt = [[entry.name for entry in one.entries] for one in manifest.fragments]
    for names in dealt:
        for buffer in (name for name in names if "running" in name):
            assert buffer.rpartition(".")[0] + ".weight" in names
    assert sum(len(names) for names in dealt) == len(exchanged(manifest.tensors)) == 11


def test_a_buffer_without_a_parameter_beside_it_goes_with_the_module_around() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Sequential(nn.Linear(4, 4))})
    model["b"].append(nn.BatchNorm1d(4, affine=False))

    specs = exchanged(describe(model, buffers="averaged"))
    _, second = plan_tensors(specs, RunSettings(fragments=2))

    assert {"b.0.weight", "b.1.running_mean"} <= {entry.name for entry in second}


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"fragments": 11, "sync_every": 10}, "set fragments to at most 10"),
        ({"fragments": 50}, "set fragments to at most 7"),
        ({"in_flight": 3, "fragments": 2}, "set 1 to 2"),
        ({"poll_s": 10.0}, "set lease_s above 40 or poll_s below 7.5"),
        ({"presence_s": 2.0}, "set presence_s above 4"),
        ({"downlink": "I8", "published": "F16"}, "published = 'F32'"),
        ({"plan": "strided", "fragments": 9}, "set fragments to at most"),
    ],
)
async def test_settings_that_cannot_work_are_refused_before_anything_is_written(
    settings: dict[str, object], advice: str
) -> None:
    store = MemoryStore()

    with pytest.raises(SettingsError, match=advice):
        await create(store, small_model(), **settings)

    assert await keys_in(store) == []


def test_a_fragment_whose_norms_do_not_fit_in_a_header_is_refused() -> None:
    specs = [
        TensorSpec(name=f"w{i}", shape=(1,), dtype="float32", kind="parameter", trainable=True)
        for i in range(MAX_TENSORS + 1)
    ]
    with pytest.raises(SettingsError, match="set fragments above 1"):
        plan_tensors(specs, RunSettings(fragments=1))
    assert len(plan_tensors(specs, RunSettings(fragments=2))) == 2


def test_the_most_tensors_a_fragment_may_have_fit_in_a_header() -> None:
    norms = ",".join([repr(-math.pi * 1e-300)] * MAX_TENSORS)
    assert len(norms) < METADATA_LIMIT_BYTES - 8192


async def test_a_run_that_is_there_is_left_alone() -> None:
    store = MemoryStore()
    manifest = await create(store, small_model())
    before = await keys_in(store)

    with pytest.raises(RunExistsError, match="gradientmail learner"):
        await create(store, small_model())

    assert (await open_run(store)).manifest == manifest
    assert await keys_in(store) == before


async def test_of_two_who_create_at_once_the_manifest_decides() -> None:
    class Overtaken(MemoryStore):
        async def put(self, key, buffers):
            await super().put(key, buffers)
            await self.create(keys.MANIFEST, b"the other one's")

    store = Overtaken()

    with pytest.raises(RunExistsError):
        await create(store, small_model())

    assert await store.create(keys.MANIFEST, b"") is Created.EXISTS
    assert await store.read(keys.MANIFEST) == b"the other one's"


async def test_a_model_with_a_nan_is_refused_by_the_tensors_name() -> None:
    model = small_model()
    with torch.no_grad():
        model[2].weight[3, 3] = float("nan")

    with pytest.raises(SettingsError, match=r"'2.weight' cannot be published: .*NaN"):
        await create(MemoryStore(), model)
