"""An export is the model's own state_dict, whatever the model is made of."""

import errno
import logging
import os
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from gradientmail.errors import ContractError, RecordError, RunNotFoundError, SettingsError
from gradientmail.mailbox import Mailbox
from gradientmail.operations import exporting
from gradientmail.operations.exporting import export_run
from gradientmail.records import keys
from gradientmail.records.commit import RoundRecord
from gradientmail.records.control import Boundary
from gradientmail.records.manifest import PayloadRef
from gradientmail.run import open_run
from gradientmail.store.memory import MemoryStore
from tests.disks import disk_that_ends_at
from tests.operations.models import Tied, Wrapper, create, shake, small_model

NONCE = "0" * 32

MODELS = {
    "batch norm": small_model,
    "tied, frozen, scalar, empty": Tied,
    "bf16": lambda: small_model().to(torch.bfloat16),
    "f64": lambda: nn.Linear(3, 5, dtype=torch.float64),
    "channels_last": lambda: nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last),
    "own module called module": lambda: Wrapper(nn.Linear(3, 3)),
}


def files_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


@pytest.mark.parametrize("kind", MODELS)
async def test_a_fresh_model_loads_the_export_and_is_the_runs(kind: str, tmp_path: Path) -> None:
    store, model, out = MemoryStore(), shake(MODELS[kind]()), tmp_path / "model.safetensors"
    fragments = min(2, sum(parameter.numel() > 0 for parameter in model.parameters()))
    # What float64 loses on the way is what float32 does not hold.
    exact = {
        k: v.float().to(v.dtype) if v.dtype == torch.float64 else v
        for k, v in model.state_dict().items()
    }
    await create(store, model, fragments=fragments)

    await export_run(store, out, model=model)

    assert files_in(tmp_path) == [out]
    loaded = load_file(out)
    assert loaded.keys() == exact.keys()
    for name, value in exact.items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value)
    MODELS[kind]().load_state_dict(loaded)


async def test_the_runs_values_win_over_the_models_and_its_own_fill_the_rest(tmp_path) -> None:
    store, ours, out = MemoryStore(), shake(Tied()), tmp_path / "model.safetensors"
    await create(store, shake(Tied()))

    await export_run(store, out, model=ours)

    loaded = load_file(out)
    assert torch.equal(loaded["middle.weight"], ours.middle.weight)
    assert not torch.equal(loaded["embed.weight"], ours.embed.weight)
    assert torch.equal(loaded["embed.weight"], loaded["head.weight"])


async def test_without_a_model_what_is_not_exchanged_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, out = MemoryStore(), tmp_path / "model.safetensors"
    await create(store, Tied())

    await export_run(store, out)

    assert load_file(out).keys() == {"embed.weight", "head.weight", "scale", "empty"}
    with safe_open(out, "pt") as file:
        assert file.metadata()["versions"] == "0"
    assert "left out 2 tensors" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


async def test_without_a_model_an_own_module_called_module_keeps_its_name(tmp_path: Path) -> None:
    store, out = MemoryStore(), tmp_path / "model.safetensors"
    await create(store, Wrapper(nn.Linear(3, 3)))

    await export_run(store, out)

    assert load_file(out).keys() == {"module.weight", "module.bias"}


async def test_another_model_is_refused_by_its_differences(tmp_path: Path) -> None:
    store = MemoryStore()
    await create(store, nn.Linear(3, 3))

    with pytest.raises(ContractError, match=r"weight: shape \(3, 3\) in the run, \(3, 4\) here"):
        await export_run(store, tmp_path / "out", model=nn.Linear(4, 3))
    assert files_in(tmp_path) == []


@pytest.mark.parametrize(("out", "advice"), [("", "is a directory"), ("no/x", "is no directory")])
async def test_a_place_that_is_none_for_a_file_is_refused(tmp_path, out, advice) -> None:
    with pytest.raises(SettingsError, match=advice):
        await export_run(MemoryStore(), tmp_path / out)


async def test_a_disk_that_is_full_is_said_and_leaves_what_was_there(tmp_path: Path) -> None:
    """Each fragment's payload fits, the model does not."""
    store, out = MemoryStore(), tmp_path / "out"
    await create(store, nn.Sequential(*(nn.Linear(50, 50) for _ in range(4))), fragments=4)
    out.write_text("what was here")

    with disk_that_ends_at(30_000), pytest.raises(SettingsError, match="out cannot be written: "):
        await export_run(store, out)

    assert files_in(tmp_path) == [out]
    assert out.read_text() == "what was here"


@pytest.mark.parametrize("step", ["TemporaryDirectory", "_require_file_place"])
async def test_a_directory_that_may_not_be_written_is_said(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    store = MemoryStore()
    await create(store, nn.Linear(3, 3))
    monkeypatch.setattr(exporting, step, refused)

    with pytest.raises(SettingsError, match="out cannot be written: Permission denied; free"):
        await export_run(store, tmp_path / "out")


async def test_a_run_whose_learners_share_no_model_has_nothing_to_export(tmp_path: Path) -> None:
    store = MemoryStore()
    await create(store, small_model(), exchange="nobody")
    with pytest.raises(SettingsError, match="no model in common"):
        await export_run(store, tmp_path / "model.safetensors")


async def test_no_run_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError):
        await export_run(MemoryStore(), tmp_path / "out")


async def commit_next(store: MemoryStore, params: PayloadRef | None = None) -> RoundRecord:
    """Commit an empty round of fragment 0, or one whose parameters are ``params``."""
    run = await open_run(store)
    newest = await run.newest(0)
    record = RoundRecord(
        run=run.name,
        fragment=0,
        version=newest.number + 1,
        parent=newest.digest,
        params=params or newest.params,
        empty=True,
        closer="c",
        term=1,
        nonce=NONCE,
    )
    await run.mailbox.create_commit(record)
    return record


async def test_a_version_that_not_all_fragments_have_is_refused_by_the_newest(tmp_path) -> None:
    store = MemoryStore()
    await create(store, small_model(), fragments=2)
    await commit_next(store)

    with pytest.raises(SettingsError, match="choose 0 to 0, the newest that all have"):
        await export_run(store, tmp_path / "out", version=1)


async def test_a_version_that_was_swept_is_refused_by_the_oldest_kept(tmp_path: Path) -> None:
    store, out = MemoryStore(), tmp_path / "out"
    manifest = await create(store, nn.Linear(3, 3))
    first = manifest.fragments[0].params
    data = await store.read(first.key)
    kept = replace(first, key=keys.payload(0, 1, NONCE, "params"))
    await store.put(kept.key, [data])
    await commit_next(store, kept)
    await store.delete([first.key])
    await Mailbox(store).create_boundary(
        Boundary(run=manifest.run, fragment=0, version=0, nonce=NONCE)
    )

    with pytest.raises(SettingsError, match="swept away; the oldest that is kept is 1"):
        await export_run(store, out, version=0)
    assert not out.exists()
    assert (await export_run(store, out)).versions == (1,)


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
async def test_a_damaged_payload_is_never_exported(tmp_path: Path, damage: str) -> None:
    store, out = MemoryStore(), tmp_path / "out"
    key = (await create(store, nn.Linear(3, 3))).fragments[0].params.key
    data = bytearray(await store.read(key) or b"")
    await store.delete([key])
    if damage == "truncated":
        await store.put(key, [bytes(data[:-1])])
    if damage == "flipped":
        data[-1] ^= 1
        await store.put(key, [bytes(data)])
    out.write_text("what was here")

    with pytest.raises(RecordError, match="committed payload"):
        await export_run(store, out)

    assert out.read_text() == "what was here"
