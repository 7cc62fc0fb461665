"""A run that retains everything is proved to the last bit, by the command a user types."""

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from gradientmail.cli.main import app
from gradientmail.operations.verified import Verified
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


def test_a_run_that_goes_on_and_is_swept_has_no_faults_at_any_time(tmp_path: Path) -> None:
    url = tmp_path / "run"
    make_run(url, sync_every=2, stop_after_rounds=40, keep_versions=1)
    looks = []
    with Team(url) as team:
        ended = [team.closer(), team.learner("ann"), team.learner("bob")]
        while not all(one.done() for one in ended):
            result = CliRunner().invoke(app, ["verify", str(url), "--json"])
            looks.append(msgspec.json.decode(result.stdout, type=Verified))
        for one in ended:
            one.result(PATIENCE_S)
    assert [fault for look in looks for fault in look.faults] == []
    assert keys_of(url, "swept/")
