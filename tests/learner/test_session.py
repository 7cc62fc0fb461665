"""The learner in a user's own loop: joining, stepping, leaving, and all that can go wrong."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradientmail as gm
from gradientmail.clock import SystemClock, system_random
from gradientmail.config import NodeSettings, RunSettings
from gradientmail.errors import (
    ContractError,
    NotJoinedError,
    RunNotFoundError,
    SettingsError,
    StateNotSavedError,
    StoreAccessError,
)
from gradientmail.learner import session
from gradientmail.learner.background import Background
from gradientmail.learner.state import StateDir
from gradientmail.learner.training import Training
from gradientmail.mailbox import Mailbox
from gradientmail.operations.creating import create_run
from gradientmail.records.presence import Presence
from gradientmail.store.base import Store
from gradientmail.store.local import LocalStore
from gradientmail.testing.faulty import Fault, FaultyStore, always, healthy
from tests.e2e.team import PATIENCE_S, eventually

H = 3


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """A run of one linear layer, in which a learner holds for each commit."""
    return make_run(tmp_path / "run")


def make_run(url: Path, model: nn.Module | None = None, **settings: Any) -> Path:
    quick = {"sync_every": H, "poll_s": 0.02, "lease_s": 0.5, "presence_s": 5.0, **settings}
    asyncio.run(
        create_run(
            LocalStore(url),
            model or make_model(1.0),
            RunSettings(**quick),
            clock=SystemClock(),
            rng=system_random(),
        )
    )
    return url


def make_model(value: float, features: int = 2) -> nn.Module:
    model = nn.Linear(features, 1)
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    return model


def value_of(model: nn.Module) -> float:
    return float(next(model.parameters()).detach().reshape(-1)[0])


def move(model: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def presence_of(url: Path, name: str = "ann") -> Presence | None:
    return asyncio.run(Mailbox(LocalStore(url)).presence(name))


def files_of(url: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in url.rglob("*") if path.is_file()}


@pytest.fixture
def closer(url: Path) -> Iterator[gm.Closer]:
    with closing(url) as closer:
        yield closer


@contextmanager
def closing(url: Path) -> Iterator[gm.Closer]:
    closer = gm.Closer(str(url))
    serving = threading.Thread(target=closer.run, daemon=True)
    serving.start()
    yield closer
    closer.request_stop()
    serving.join(PATIENCE_S)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> FaultyStore:
    """The store that learners open next, with faults to be planned."""
    opened = FaultyStore(LocalStore(Path("/nowhere")), healthy)

    def open_faulty(url: str, **_: object) -> Store:
        opened._inner = LocalStore(Path(url))
        return opened

    monkeypatch.setattr(session, "open_store", open_faulty)
    return opened


# -- joining and leaving --------------------------------------------------------------------------


def test_entering_takes_over_the_run_and_leaving_says_so(url: Path) -> None:
    model = make_model(0.0)
    with gm.Learner(str(url), model, name="ann") as learner:
        assert value_of(model) == 1.0
        assert not learner.done
        eventually(lambda: presence_of(url))
        learner.step(tokens=1)
        assert (learner.progress.steps, learner.progress.tokens) == (1, 1)
    presence = presence_of(url)
    assert presence is not None
    assert presence.left


def test_a_learner_and_a_closer_exchange(url: Path, closer: gm.Closer) -> None:
    model = make_model(0.0)
    with gm.Learner(str(url), model, name="ann") as learner:
        while learner.progress.applied < 3:
            move(model, -0.1)
            learner.step(tokens=7)
    assert learner.progress.versions == (3,)
    assert learner.progress.steps == 3 * H
    assert value_of(model) < 1.0 - 0.7 * 3 * H * 0.1


def test_where_there_is_no_run_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RunNotFoundError, match="gradientmail init"),
        gm.Learner(str(tmp_path / "run"), make_model(0.0)),
    ):
        pass
    assert not (tmp_path / "run").exists()


def test_another_model_is_refused_with_the_differences_before_anything_is_written(
    url: Path,
) -> None:
    before, model = files_of(url), make_model(0.5, features=3)
    with pytest.raises(ContractError) as raised, gm.Learner(str(url), model, name="ann"):
        pass
    assert raised.value.differences == ("weight: shape (1, 2) in the run, (1, 3) here",)
    assert "nothing was written" in str(raised.value)
    assert files_of(url) == before
    assert value_of(model) == 0.5


def test_another_dtype_is_refused(url: Path) -> None:
    with (
        pytest.raises(ContractError, match=r"dtype float32 in the run, bfloat16 here"),
        gm.Learner(str(url), make_model(0.0).bfloat16()),
    ):
        pass


def test_an_error_in_the_loop_is_the_users_own_and_leaves_at_once(url: Path) -> None:
    """No closer runs: waiting for the round in flight would take half a minute of polls."""
    model = make_model(0.0)

    def train() -> None:
        with gm.Learner(str(url), model, name="ann") as learner:
            learner.step(tokens=1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    presence = presence_of(url)
    assert presence is not None
    assert presence.left


def test_a_learner_leaves_though_its_round_is_never_closed(url: Path) -> None:
    model = make_model(0.0)
    with gm.Learner(str(url), model, name="ann") as learner:
        stopping = threading.Timer(0.0, learner.request_stop)
        stopping.start()
        for _ in range(H):
            learner.step(tokens=1)
        stopping.join()
        learner.close()
        assert learner.done
    assert len(list((url / "mail").rglob("*.safetensors"))) == 1


# -- stepping -------------------------------------------------------------------------------------


def test_a_stop_from_another_thread_ends_a_hold(url: Path) -> None:
    with gm.Learner(str(url), make_model(0.0), name="ann") as learner:

        def train() -> None:
            while not learner.done:
                learner.step(tokens=1)

        training = threading.Thread(target=train, daemon=True)
        training.start()
        eventually(lambda: learner.progress.holding)
        assert not learner.done
        learner.request_stop()
        training.join(PATIENCE_S)
        assert not training.is_alive()
        assert learner.progress.steps == H


def test_an_interrupt_while_it_leaves_ends_it_at_once_however_the_store_hangs(
    url: Path,
    faulty: FaultyStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gradientmail")

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def train() -> None:
        with gm.Learner(str(url), make_model(0.0), name="ann") as learner:
            monkeypatch.setattr(faulty, "put", hang)
            for _ in range(H - 1):
                learner.step(tokens=1)
            learner.request_stop()  # else the last step would hold for the commit
            learner.step(tokens=1)
            monkeypatch.setattr(Background, "call", interrupt)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train()
    assert "waiting for the store to take what was posted, for 120 s at most" in caplog.text


def test_what_ends_the_background_is_raised_by_the_next_step(
    url: Path, faulty: FaultyStore
) -> None:
    def train() -> None:
        with gm.Learner(str(url), make_model(0.0), name="ann") as learner:
            learner.step(tokens=1)
            faulty.plan = always("read", Fault.DENY)
            while True:
                learner.step(tokens=1)

    with pytest.raises(StoreAccessError, match="403"):
        train()


def test_what_ends_the_background_ends_a_hold(url: Path, faulty: FaultyStore) -> None:
    faulty.plan = always("put", Fault.DENY, "mail/")

    def train() -> None:
        with gm.Learner(str(url), make_model(0.0), name="ann") as learner:
            for _ in range(H):
                learner.step(tokens=1)

    with pytest.raises(StoreAccessError, match="403"):
        train()


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_step_without_tokens_is_an_error(tokens: int, url: Path) -> None:
    with gm.Learner(str(url), make_model(0.0), name="ann") as learner:
        with pytest.raises(SettingsError, match=f"tokens={tokens}: count what the step"):
            learner.step(tokens=tokens)
        assert learner.progress.steps == 0
        learner.step(tokens=1)


@pytest.mark.parametrize(
    "use",
    [
        lambda learner: learner.step(tokens=1),
        lambda learner: learner.done,
        lambda learner: learner.progress,
        lambda learner: learner.batch_share,
        lambda learner: learner.run,
        lambda learner: learner.close(),
    ],
    ids=["step", "done", "progress", "batch_share", "run", "close"],
)
def test_a_learner_that_was_not_entered_says_so(
    use: Callable[[gm.Learner], object], url: Path
) -> None:
    learner = gm.Learner(str(url), make_model(0.0), name="ann")
    with pytest.raises(NotJoinedError, match="write `with learner:` around"):
        use(learner)
    with learner:  # and may still join
        use(learner)


def test_whatever_is_a_whole_number_counts(url: Path) -> None:
    with gm.Learner(str(url), make_model(0.0), name="ann") as learner:
        learner.step(tokens=torch.tensor(3), samples=np.int64(2))
        assert (learner.progress.tokens, learner.progress.samples) == (3, 2)
        for tokens in (128.0, torch.tensor(1.0), torch.ones(2), "1"):
            with pytest.raises(SettingsError, match=r"tokens=.*: pass a whole number"):
                learner.step(tokens=tokens)  # type: ignore[arg-type]
        assert learner.progress.steps == 1


@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_samples_must_be_counted_where_they_weigh(weights: str, tmp_path: Path) -> None:
    make_run(tmp_path, weights=weights)
    with gm.Learner(str(tmp_path), make_model(0.0), name="ann") as learner:
        if weights == "samples":
            with pytest.raises(SettingsError, match=r"samples=0: .* step\(tokens=..., samples="):
                learner.step(tokens=1)
            assert learner.progress.steps == 0
        learner.step(tokens=5, samples=2)
        assert (learner.progress.tokens, learner.progress.samples) == (5, 2)


def test_a_loss_that_is_nan_is_said_once_it_is_read(
    url: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with gm.Learner(str(url), make_model(0.0), name="ann") as learner:
        learner.step(tokens=1, loss=torch.tensor(math.nan, requires_grad=True))
        assert learner.progress.loss is None
    assert "the loss is nan at step 1" in caplog.text


def test_nan_goes_back_to_the_commit_and_heals_the_optimizer(url: Path, closer: gm.Closer) -> None:
    model = make_model(0.0)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def train(learner: gm.Learner, factor: float) -> None:
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2)).square().mean() * factor
        loss.backward()
        optimizer.step()
        learner.step(tokens=4, loss=loss)

    with gm.Learner(str(url), model, name="ann", optimizer=optimizer) as learner:
        for _ in range(H):
            train(learner, 1.0)
        committed = value_of(model)
        for _ in range(H):
            train(learner, math.nan)
        assert value_of(model) == committed
        assert learner.progress.rejected == "parameters are NaN or infinite"
        while learner.progress.applied < 3:
            train(learner, 1.0)
        assert math.isfinite(value_of(model))


class WithHead(nn.Module):
    """A linear layer that is exchanged, below a head that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(points)))


def is_finite(values: dict[str, Any]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in values.values())


@pytest.mark.parametrize("poisoned", ["head.weight", "head.bias"])
@pytest.mark.parametrize("exchange", ["closer", "nobody"])
def test_nan_in_what_is_not_exchanged_goes_back_to_what_was_saved_and_is_said_once(
    exchange: str, poisoned: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, url = WithHead(), tmp_path / "run"
    local = {"head": {"exchange": "nobody"}} if exchange == "closer" else {}
    make_run(url, model, exchange=exchange, overlap_steps=None, modules=local)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    node, state = NodeSettings(save_every_s=0.0), tmp_path / "state"

    with gm.Learner(
        str(url), model, name="ann", optimizer=optimizer, state_dir=state, node=node
    ) as learner:

        def train() -> None:
            optimizer.zero_grad()
            loss = (model(torch.ones(4, 2)) - 3.0).square().mean()
            loss.backward()
            optimizer.step()
            learner.step(tokens=4, loss=loss)

        train()
        good = model.get_parameter(poisoned).detach().clone()
        nn.init.constant_(model.get_parameter(poisoned), math.nan)
        learner.step(tokens=4)
        assert torch.equal(model.get_parameter(poisoned), good)
        nn.init.constant_(model.get_parameter(poisoned), math.nan)
        train()  # now it is in every parameter and all of the optimizer's state
        for _ in range(2 * H):
            train()
        assert is_finite(model.state_dict())
        assert not torch.equal(model.get_parameter(poisoned), good), "it trains on"
    saved = StateDir(state)
    held = saved.load()
    saved.close()
    assert held is not None
    assert is_finite(held.tensors)
    told = [one.getMessage() for one in caplog.records if "(not exchanged)" in one.getMessage()]
    assert len(told) == 2, "once for each time"
    assert all(poisoned in one for one in told)
    assert "back at the values of step 1" in told[0]


def test_nan_in_what_is_not_exchanged_is_found_without_a_state_directory_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Statistics may be poisoned by a step that the optimizer skipped."""
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    url = make_run(tmp_path / "run", model, buffers="local")
    with closing(url), gm.Learner(str(url), model, name="ann") as learner:
        model.get_buffer("1.running_mean").fill_(math.inf)
        move(model, 1.0)
        for _ in range(H):
            learner.step(tokens=1)
        assert is_finite(model.state_dict())
        assert learner.progress.rejected is None, "what is exchanged was well"
        assert learner.progress.posted == 1
    assert "1.running_mean (not exchanged) NaN or infinite after step 3" in caplog.text


def test_a_state_that_was_saved_poisoned_heals_from_what_the_model_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version saved such states."""
    model, state = WithHead(), tmp_path / "state"
    local = {"head": {"exchange": "nobody"}}
    url = make_run(tmp_path / "run", model, overlap_steps=None, modules=local)
    with (
        monkeypatch.context() as earlier,
        gm.Learner(str(url), model, name="ann", state_dir=state) as learner,
    ):
        earlier.setattr(Training, "heal", lambda _: None)
        nn.init.constant_(model.head.weight, math.nan)
        learner.step(tokens=1)
    fresh = WithHead()
    began = fresh.head.weight.detach().clone()
    with gm.Learner(str(url), fresh, name="ann", state_dir=state):
        assert not is_finite(fresh.state_dict())
    assert torch.equal(fresh.head.weight, began)


# -- state ----------------------------------------------------------------------------------------


def test_a_learner_with_a_state_directory_goes_on_where_it_was(
    url: Path, tmp_path: Path, closer: gm.Closer
) -> None:
    state = tmp_path / "state"
    node = NodeSettings(save_every_s=0.0)
    model = make_model(0.0)
    with gm.Learner(str(url), model, name="ann", state_dir=state, node=node) as learner:
        for _ in range(H + 1):
            move(model, -0.1)
            learner.step(tokens=1)
        value = value_of(model)
    model = make_model(0.0)
    with gm.Learner(str(url), model, name="ann", state_dir=state, node=node) as learner:
        assert value_of(model) == value
        assert learner.progress.steps == H + 1
        for _ in range(H - 1):
            move(model, -0.1)
            learner.step(tokens=1)
        assert (learner.progress.posted, learner.progress.applied) == (2, 2)
    used = [p for v in (1, 2) for p in record_of(url, v).participants]
    assert [(p.base, p.steps) for p in used] == [(0, H), (1, H)]


def record_of(url: Path, version: int) -> Any:
    found = asyncio.run(Mailbox(LocalStore(url)).commit(0, version))
    assert found is not None
    return found[0]


def test_two_learners_cannot_share_a_state_directory(url: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with (
        gm.Learner(str(url), make_model(0.0), name="ann", state_dir=state),
        pytest.raises(SettingsError, match="in use by process"),
        gm.Learner(str(url), make_model(0.0), name="bob", state_dir=state),
    ):
        pass


def test_the_state_of_another_run_is_refused_and_its_directory_let_go(
    url: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with gm.Learner(str(url), make_model(0.0), name="ann", state_dir=state) as learner:
        learner.step(tokens=1)
    other = make_run(tmp_path / "other")
    with (
        pytest.raises(SettingsError, match="belongs to run"),
        gm.Learner(str(other), make_model(0.0), name="ann", state_dir=state),
    ):
        pass
    assert presence_of(other) is None
    with gm.Learner(str(url), make_model(0.0), name="ann", state_dir=state) as learner:
        assert learner.progress.steps == 1


def test_another_optimizer_is_refused_and_the_learner_is_gone(url: Path, tmp_path: Path) -> None:
    """Or a thread would go on telling the run of a learner that does not exist."""
    state = tmp_path / "state"

    def learner_with(optimizer: Callable[[Any], torch.optim.Optimizer]) -> gm.Learner:
        model = nn.Linear(2, 1)
        return gm.Learner(
            str(url), model, name="ann", state_dir=state, optimizer=optimizer(model.parameters())
        )

    with learner_with(lambda parameters: torch.optim.SGD(parameters, 0.1)) as learner:
        learner.step(tokens=1)
    alone = threading.active_count()
    with (
        pytest.raises(SettingsError, match="optimizer"),
        learner_with(lambda parameters: torch.optim.SGD([{"params": [p]} for p in parameters])),
    ):
        pass
    assert threading.active_count() == alone
    with learner_with(lambda parameters: torch.optim.SGD(parameters, 0.1)) as learner:
        assert learner.progress.steps == 1


def test_a_full_disk_costs_the_state_and_not_the_training(
    url: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object) -> None:
        raise StateNotSavedError("the state was not saved: no room by plan")

    monkeypatch.setattr(StateDir, "save", full)
    with gm.Learner(str(url), make_model(0.0), name="ann", state_dir=tmp_path / "s") as learner:
        learner.step(tokens=1)
    assert learner.progress.steps == 1
    assert "no room by plan" in caplog.text


def test_without_a_name_it_has_one_of_its_own_and_keeps_it_with_its_state(
    url: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    names = []
    for state in (tmp_path / "a", tmp_path / "a", tmp_path / "b", None):
        with gm.Learner(str(url), make_model(0.0), state_dir=state) as learner:
            names.append(learner.name)
    assert names[0] == names[1]
    assert len(set(names)) == 3
