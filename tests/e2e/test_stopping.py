"""A stop at any time: before joining, while joining, with or without a state to go on from."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradientmail as gm
from gradientmail.config import NodeSettings
from gradientmail.errors import NotJoinedError, SettingsError
from gradientmail.learner import outbox
from gradientmail.learner.posts import Encoded, encode_delta
from gradientmail.learner.state import StateDir
from gradientmail.testing.faulty import Fault, FaultyStore, always
from tests.learner.test_session import (
    H,
    closer,
    faulty,
    make_model,
    make_run,
    presence_of,
    url,
)

__all__ = ["closer", "faulty", "url"]


class Position:
    """A place in the data, which may be any object."""

    def __init__(self, place: object) -> None:
        self.place = place

    def state_dict(self) -> Any:
        return {"place": self.place}

    def load_state_dict(self, state: Any) -> None:
        self.place = state["place"]


def mail_of(url: Path) -> list[Path]:
    return list((url / "mail").rglob("*.safetensors"))


# -- joining --------------------------------------------------------------------------------------


def test_a_learner_asked_to_stop_before_it_joins_does_not_join(url: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    learner = gm.Learner(str(url), make_model(0.0), name="ann", state_dir=state)
    learner.request_stop()
    with pytest.raises(NotJoinedError), learner:
        pass
    assert presence_of(url) is None
    StateDir(state).close()


def test_a_learner_asked_to_stop_while_it_joins_does_not_join(url: Path, tmp_path: Path) -> None:
    """It looks for a payload that was lost."""
    (payload,) = (url / "fragments").rglob("*.safetensors")
    payload.unlink()
    learner = gm.Learner(str(url), make_model(0.0), name="ann")
    threading.Timer(0.05, learner.request_stop).start()
    with pytest.raises(NotJoinedError), learner:
        pass
    assert not learner._background._thread.is_alive()


# -- what cannot be saved -------------------------------------------------------------------------


def test_a_position_that_cannot_be_saved_is_told_on_entering(url: Path, tmp_path: Path) -> None:
    learner = gm.Learner(
        str(url),
        make_model(0.0),
        name="ann",
        state_dir=tmp_path / "state",
        position=Position({1, 2}),
    )
    with pytest.raises(SettingsError, match=r"state\['position'\]\['place'\] is set"), learner:
        pass
    assert not learner._background._thread.is_alive()
    StateDir(tmp_path / "state").close()


def test_a_position_of_numpy_numbers_is_saved(url: Path, tmp_path: Path) -> None:
    first, second = Position(np.int64(7)), Position(None)
    for position in (first, second):
        learner = gm.Learner(
            str(url),
            make_model(0.0),
            name="ann",
            state_dir=tmp_path / "state",
            position=position,
        )
        with learner:
            learner.step(tokens=1)
    assert second.place == 7


def test_saving_that_is_held_up_for_long_is_told_once(
    url: Path,
    tmp_path: Path,
    faulty: FaultyStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faulty.plan = always("put", Fault.NOT_APPLIED, "mail/")
    may_encode = threading.Event()

    def encode_when_allowed(*args: Any) -> Encoded:
        assert may_encode.wait(30.0), "the learner's steps are over by then"
        return encode_delta(*args)

    monkeypatch.setattr(outbox, "encode_delta", encode_when_allowed)
    node = NodeSettings(save_every_s=1e-6, retry_deadline_s=0.05)
    learner = gm.Learner(
        str(url), make_model(0.0), name="ann", state_dir=tmp_path / "state", node=node
    )
    with learner:
        for _ in range(H - 1):
            learner.step(tokens=1)
        learner.request_stop()
        for _ in range(3):
            learner.step(tokens=1)
        may_encode.set()
    assert caplog.text.count("no state was saved for") == 1
    assert "left before the last contribution" in caplog.text


# -- a stop with steps that are not posted --------------------------------------------------------


@pytest.mark.parametrize(("keeps_state", "posted"), [(False, 1), (True, 0)])
def test_a_stop_posts_what_is_left_unless_the_state_keeps_it(
    *, keeps_state: bool, posted: int, tmp_path: Path
) -> None:
    url = make_run(tmp_path / "flushed", flush_on_close=True)
    state = tmp_path / "state" if keeps_state else None
    with gm.Learner(str(url), make_model(0.0), name="ann", state_dir=state) as learner:
        for _ in range(H - 1):
            learner.step(tokens=1)
        learner.request_stop()
    assert len(mail_of(url)) == posted
