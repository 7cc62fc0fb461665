import random
from pathlib import Path

import pytest

from gradientmail.errors import SettingsError
from gradientmail.names import default_name, learner_name, require_name


@pytest.fixture
def rng() -> random.Random:
    return random.Random(1)


def test_a_state_directory_names_its_learner_and_keeps_the_name(
    tmp_path: Path, rng: random.Random
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"

    assert learner_name(here, rng) == require_name(learner_name(here, rng))
    assert learner_name(here, rng) != learner_name(there, rng)
    assert learner_name(None, rng) != learner_name(None, rng)


def test_a_default_name_fits_in_a_key_whatever_the_host_is_called(
    monkeypatch: pytest.MonkeyPatch, rng: random.Random
) -> None:
    for host in ("a.b-c.example", "_", "x" * 200, "\u00e9t\u00e9"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        assert require_name(default_name("closer", rng))


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "x" * 65, "\u00e9"])
def test_a_name_that_does_not_fit_in_a_key_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="letters, digits"):
        require_name(name)
