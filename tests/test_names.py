import random
import re
from pathlib import Path

import pytest

from gradientmail.config import NodeSettings, resolve
from gradientmail.errors import SettingsError
from gradientmail.names import default_name, learner_name, require_name


@pytest.fixture
def rng() -> random.Random:
    return random.Random(1)


def test_a_state_directory_keeps_the_name_of_its_learner(
    tmp_path: Path, rng: random.Random
) -> None:
    here, there = tmp_path / "a" / "here", tmp_path / "there"

    assert learner_name(here, rng) == require_name(learner_name(here, rng))
    assert learner_name(here, rng) != learner_name(there, rng)
    assert learner_name(None, rng) != learner_name(None, rng)
    assert [path.name for path in here.iterdir()] == ["name"]


def test_two_machines_of_one_host_name_and_path_have_two_names(tmp_path: Path) -> None:
    """Containers often have; each has a state directory of its own all the same."""
    names = set()
    for machine in range(2):
        state_dir = tmp_path / "state"
        names.add(learner_name(state_dir, random.Random(machine)))
        state_dir.rename(tmp_path / f"of-machine-{machine}")
    assert len(names) == 2


def test_a_directory_that_cannot_keep_a_name_is_refused(
    tmp_path: Path, rng: random.Random
) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    with pytest.raises(SettingsError, match="cannot be used"):
        learner_name(tmp_path / "file" / "state", rng)


def test_a_default_name_fits_in_a_key_whatever_the_host_is_called(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    for host in ("a.b-c.example", "_", "x" * 200, "\u00e9t\u00e9"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        assert require_name(default_name("closer", rng))


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "x" * 65, "\u00e9"])
def test_a_name_that_does_not_fit_in_a_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="64 letters a to z or A to Z, digits"):
        require_name(name)


@pytest.mark.parametrize(
    ("wrong", "example"),
    [
        ("bo b", ", such as 'bo-b'"),
        ("_Zo\u00eb's box/", ", such as 'Zo-s-box'"),
        ("x" * 65, f", such as '{'x' * 64}'"),
        ("\u00e9", "'-' and '_'"),
        ("", "'-' and '_'"),
    ],
)
def test_a_wrong_name_is_told_a_right_one_near_to_it(wrong: str, example: str) -> None:
    for judge in (require_name, lambda name: resolve(NodeSettings, ("flag", {"name": name}))):
        with pytest.raises(SettingsError, match=f"{re.escape(example)}$"):
            judge(wrong)
