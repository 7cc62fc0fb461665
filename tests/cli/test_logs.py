"""Each line says what it is about; with json it is one object."""

import json
import logging

import pytest

from gradientmail.cli.logs import configure_logging
from gradientmail.config import NodeSettings
from gradientmail.logs import get_logger
from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def _restored(cli: Cli) -> None:
    """Logging is as before after each test: ``cli`` sees to it."""


def test_a_json_line_has_every_known_field(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(NodeSettings(log_format="json"))

    log = get_logger("gradientmail.closer", run="r1", closer="c1")
    log.info("closed %d", 3, extra={"fragment": 0, "version": 4})

    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert line.pop("ts").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "gradientmail.closer",
        "message": "closed 3",
        "run": "r1",
        "closer": "c1",
        "fragment": 0,
        "version": 4,
    }


def test_a_json_line_stays_one_line_whatever_is_in_it(capsys) -> None:
    configure_logging(NodeSettings(log_format="json", log_level="debug"))
    log = logging.getLogger("gradientmail.x")

    log.warning("two\nlines", extra={"version": object()})
    log.error("failed", exc_info=ValueError("inside"))

    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert first["message"] == "two\nlines"
    assert "ValueError: inside" in second["traceback"]


def test_a_human_line_has_a_time_the_level_and_the_fields(capsys) -> None:
    configure_logging(NodeSettings())

    log = get_logger("gradientmail.closer", closer="c1")
    log.warning("stepping down [really]", extra={"fragment": 0})
    log.info("going on")
    log.debug("not shown")

    first, second = capsys.readouterr().err.splitlines()
    assert first[8:] == " warning: stepping down [really]  closer=c1 fragment=0"
    assert second[8:] == " going on  closer=c1"


def test_a_commands_own_answer_stands_alone(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(NodeSettings())

    logging.getLogger("gradientmail.cli").error("no run here")

    assert capsys.readouterr().err == "error: no run here\n"


def test_other_libraries_are_heard_when_they_warn(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(NodeSettings(log_level="debug"))

    logging.getLogger("botocore").info("chatter")
    logging.getLogger("botocore").warning("careful")

    assert capsys.readouterr().err.count("\n") == 1
