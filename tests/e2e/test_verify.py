"""A run that retains everything is proved to the last bit, by the command a user types."""

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from gradientmail.cli.main import app
from gradientmail.operations.verifying import Verified
from tests.e2e.team import PATIENCE_S, Team, keys_of, make_run


def test_a_retained_run_of_two_learners_is_derived_again_whole(tmp_path: Path) -> None:
    url = tmp_path / "run"
    sizes = {"fragments": 2, "sync_every": 4, "stop_after_rounds": 12}
    make_run(url, "streaming-diloco", retain="true", **sizes)
    with Team(url) as team:
        ended = [team.closer(), team.learner("ann"), team.learner("bob")]
        for one in ended:
            one.result(PATIENCE_S)
    result = CliRunner().invoke(app, ["verify", str(url), "--json"])
    assert result.exit_code == 0
    verified = msgspec.json.decode(result.stdout, type=Verified)
    assert verified.faults == ()
    assert sum(one.derived + one.empty for one in verified.fragments) == 12
    assert all(one.derived and not one.not_derived for one in verified.fragments)
    assert not keys_of(url, "swept/")
