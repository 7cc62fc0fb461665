"""A learner's local state: nothing is lost in the packing, nor by a kill at any moment."""

import logging
import math
import multiprocessing
import os
import random
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradientmail.errors import SettingsError, StateNotSavedError
from gradientmail.learner import state as state_module
from gradientmail.learner.state import StateDir, pack, restore_rng, rng_state, unpack
from tests.disks import disk_that_ends_at

CPU = torch.device("cpu")


@pytest.fixture
def directory(tmp_path: Path):
    directory = StateDir(tmp_path / "state")
    yield directory
    directory.close()


def files(directory: StateDir) -> list[str]:
    return sorted(path.name for path in directory._path.iterdir() if path.name != "lock")


def saved(directory: StateDir, *values: object) -> list[Path]:
    """Save each of ``values``; the generations there are then, oldest first."""
    for value in values:
        directory.save(pack(value))
    return directory._generations()


def loaded(directory: StateDir) -> object:
    state = directory.load()
    return None if state is None else unpack(state)


# -- packing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tree",
    [
        None,
        True,
        2**127,
        0.1,
        -math.inf,
        "text\n\u00e9",
        b"\x00\xff",
        [],
        (),
        {},
        [1, (2, [3.0, None])],
        {1: "int key", "1": "str key", "tensor": {"tuple": ()}},
    ],
)
def test_plain_values_come_back_as_they_were(tree: object) -> None:
    back = unpack(pack(tree))
    assert back == tree
    assert type(back) is type(tree)


def test_types_inside_containers_are_kept() -> None:
    back = unpack(pack({"a": (True, 1, 1.0)}))
    assert [type(item) for item in back["a"]] == [bool, int, float]


def test_nan_comes_back() -> None:
    assert math.isnan(unpack(pack(math.nan)))


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float32, torch.bfloat16, torch.float16, torch.float64),
        *(torch.int64, torch.uint8, torch.bool, torch.complex64),
    ],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 2)])
def test_tensors_keep_dtype_shape_and_bits_through_the_disk(directory, dtype, shape) -> None:
    tensor = (torch.randn(shape) * 3).to(dtype)
    saved(directory, {"t": tensor})
    assert_equal(loaded(directory)["t"], tensor)


def assert_equal(back: torch.Tensor, tensor: torch.Tensor) -> None:
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_tensors_that_share_storage_or_are_not_contiguous_are_saved(directory) -> None:
    base = torch.randn(4, 6)
    saved(directory, [base, base.t(), base[1:], base])
    for back, tensor in zip(loaded(directory), [base, base.t(), base[1:], base], strict=True):
        assert_equal(back, tensor)


def test_numpy_arrays_come_back_as_arrays(directory) -> None:
    array = np.arange(5, dtype=np.uint32)
    saved(directory, array)
    back = loaded(directory)
    assert isinstance(back, np.ndarray)
    assert back.dtype == np.uint32
    assert back.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "array",
    [np.arange(5)[::-1], np.arange(1)[::-1], np.arange(6).reshape(2, 3).T[::-1], np.array(7)],
    ids=["reversed", "one", "matrix", "scalar"],
)
def test_a_numpy_array_has_any_strides(array: np.ndarray) -> None:
    back = unpack(pack(array))
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_a_subclass_comes_back_as_its_base() -> None:
    assert type(unpack(pack(OrderedDict(a=1)))) is dict
    assert type(unpack(pack(torch.Size([2])))) is tuple


def test_a_packed_state_is_a_snapshot() -> None:
    tensor = torch.zeros(2)
    state = pack([tensor])
    tensor += 1
    assert unpack(state)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("tree", "where"),
    [
        ({"a": [0, {1, 2}]}, r"state\['a'\]\[1\] is set"),
        ({"f": (len,)}, r"state\['f'\]\[0\] is builtin_function_or_method"),
        ({(1, 2): 3}, r"state is dict, .*keys: str or int"),
        ([torch.zeros(2).to_sparse()], r"state\[0\] is Tensor, .*dense"),
        (np.array(["text"]), "state is ndarray"),
    ],
)
def test_what_cannot_be_saved_is_named_by_its_place(tree: object, where: str) -> None:
    with pytest.raises(SettingsError, match=where):
        pack(tree)


# -- generations ----------------------------------------------------------------------------


def test_an_empty_directory_holds_no_state(directory) -> None:
    assert directory.load() is None


def test_the_newest_of_two_generations_is_loaded(directory) -> None:
    assert len(saved(directory, "one", "two", "three")) == 2
    assert loaded(directory) == "three"


def test_states_outlive_the_process(tmp_path: Path) -> None:
    first = StateDir(tmp_path)
    saved(first, "one", "two")
    first.close()
    second = StateDir(tmp_path)
    assert loaded(second) == "two"
    saved(second, "three")
    assert loaded(second) == "three"
    second.close()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, empty, flip])
def test_a_damaged_state_falls_back_to_the_one_before_and_says_so(
    directory, damage, caplog: pytest.LogCaptureFixture
) -> None:
    newest = saved(directory, ["one", torch.ones(3)], ["two", torch.ones(3)])[-1]
    damage(newest)
    with caplog.at_level(logging.WARNING):
        assert loaded(directory)[0] == "one"
    assert f"{newest} is damaged" in caplog.text


def test_a_missing_newest_falls_back_to_the_one_before(directory) -> None:
    saved(directory, "one", "two")[-1].unlink()
    assert loaded(directory) == "one"


def test_the_state_fallen_back_to_outlives_the_next_save(directory) -> None:
    damaged = saved(directory, "one", "two")[-1]
    flip(damaged)
    directory.load()
    newest = saved(directory, "three")[-1]
    flip(newest)
    assert loaded(directory) == "one"


def test_nothing_intact_is_no_state(directory) -> None:
    for path in saved(directory, "one", "two"):
        flip(path)
    assert directory.load() is None


class KilledError(BaseException):
    """The process ends here."""


STEPS = ["save_file", "_synced_digest", "rename", "_sync_directory", "unlink"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_around_any_step_leaves_a_whole_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    first = StateDir(tmp_path)
    saved(first, "one", "two")
    owner = next(
        o for o in (state_module, state_module.safetensors.torch, Path) if hasattr(o, step)
    )
    real = getattr(owner, step)

    def killed(*args: object, **kwargs: object) -> None:
        if when == "after":
            real(*args, **kwargs)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, killed)
        with pytest.raises(KilledError):
            first.save(pack("three"))
    first.close()

    second = StateDir(tmp_path)
    renamed = STEPS.index(step) > STEPS.index("rename") or (step, when) == ("rename", "after")
    assert loaded(second) == ("three" if renamed else "two")
    assert len(saved(second, "four")) == 2
    assert loaded(second) == "four"
    assert len(files(second)) == 2
    second.close()


def test_a_full_disk_keeps_the_state_before(directory) -> None:
    saved(directory, "one", "two")
    with (
        disk_that_ends_at(10_000),
        pytest.raises(StateNotSavedError, match="still holds the one before"),
    ):
        directory.save(pack(torch.zeros(100_000)))
    assert loaded(directory) == "two"
    assert len(files(directory)) == 2
    saved(directory, "four")
    assert loaded(directory) == "four"


def test_a_state_of_another_format_is_refused(directory, monkeypatch) -> None:
    monkeypatch.setattr(state_module, "FORMAT", "state/3")
    saved(directory, "one")
    monkeypatch.undo()
    with pytest.raises(SettingsError, match="has format 'state/3', this gradientmail reads"):
        directory.load()


# -- the lock -------------------------------------------------------------------------------


def test_a_directory_in_use_is_refused_naming_the_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gradientmail.learner.state import StateDir;"
        f"d = StateDir(Path({str(tmp_path)!r})); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(SettingsError, match=f"in use by process {holder.pid};"):
            StateDir(tmp_path)
        holder.kill()
    StateDir(tmp_path).close()


def test_a_second_learner_in_this_process_is_refused_too(directory) -> None:
    with pytest.raises(SettingsError, match=f"in use by process {os.getpid()}"):
        StateDir(directory._path)


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    directory = StateDir(tmp_path)
    fork = multiprocessing.get_context("fork")
    started, end = fork.Event(), fork.Event()
    child = fork.Process(target=lambda: (started.set(), end.wait()))
    child.start()
    started.wait()
    with pytest.raises(SettingsError):
        StateDir(tmp_path)
    directory.close()
    StateDir(tmp_path).close()
    end.set()
    child.join()


def test_a_path_that_cannot_be_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(SettingsError, match="cannot be used"):
        StateDir(tmp_path / "file")


# -- resuming -------------------------------------------------------------------------------


def test_every_global_generator_goes_on_where_it_was(directory) -> None:
    def drawn() -> tuple[object, ...]:
        return random.random(), np.random.rand(), np.random.randn(), torch.rand(1).item()

    np.random.randn()
    saved(directory, rng_state(CPU))
    expected = drawn()
    restore_rng(loaded(directory), CPU)
    assert drawn() == expected


class Training:
    """AdamW on a net with dropout, data from a generator of its own."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, amsgrad=True)
        self.data = torch.Generator().manual_seed(1)

    def steps(self, count: int) -> None:
        for _ in range(count):
            x = torch.randn(8, 6, generator=self.data)
            self.optimizer.zero_grad()
            self.model(x).square().mean().backward()
            self.optimizer.step()

    def tree(self) -> dict[str, object]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": rng_state(CPU),
            "data": self.data.get_state(),
        }

    def restore(self, tree: dict) -> None:
        self.model.load_state_dict(tree["model"])
        self.optimizer.load_state_dict(tree["optimizer"])
        self.data.set_state(tree["data"])
        restore_rng(tree["rng"], CPU)


def test_a_resumed_training_is_byte_equal_to_an_undisturbed_one(directory) -> None:
    undisturbed = Training()
    undisturbed.steps(12)

    killed = Training()
    killed.steps(5)
    saved(directory, killed.tree())
    killed.steps(3)
    resumed = Training()
    resumed.restore(loaded(directory))
    resumed.steps(7)
    for ours, theirs in zip(
        resumed.model.parameters(), undisturbed.model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
