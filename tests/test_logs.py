"""Every line says what it is about."""

import logging

import pytest

from gradientmail.logs import FIELDS, get_logger


def fields(record: logging.LogRecord) -> dict[str, object]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def test_a_line_carries_its_loggers_fields_and_its_own(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("gradientmail.closer", run="r1", closer="c-1")
    with caplog.at_level(logging.INFO):
        log.info("closed %d", 7, extra={"fragment": 0, "version": 7})
        log.info("polling")
    closed, polling = caplog.records
    assert closed.getMessage() == "closed 7"
    assert fields(closed) == {"run": "r1", "closer": "c-1", "fragment": 0, "version": 7}
    assert fields(polling) == {"run": "r1", "closer": "c-1"}


def test_a_lines_own_field_wins(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("gradientmail.closer", learner="alice").warning("x", extra={"learner": "bob"})
    assert fields(caplog.records[0]) == {"learner": "bob"}
