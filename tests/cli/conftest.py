"""The command line in this process, and a run to use it on."""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gradientmail.cli.main import app
from gradientmail.clock import SystemClock
from gradientmail.config import RunSettings
from gradientmail.operations.creating import create_run
from gradientmail.store.local import LocalStore
from tests.cli.programs import tiny

Cli = Callable[..., Result]


@pytest.fixture
def cli() -> Iterator[Cli]:
    """Types a command; its output is in ``stdout`` and ``stderr``, its code in ``exit_code``."""
    loggers = [logging.getLogger(name) for name in ("", "gradientmail")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield lambda *words: CliRunner().invoke(app, [str(word) for word in words])
    logging.captureWarnings(capture=False)
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers = handlers


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GRADIENTMAIL_")]:
        monkeypatch.delenv(name)


def make_run(url: Path, **settings: object) -> None:
    """Create a run of the tiny program in the directory ``url``."""
    asyncio.run(
        create_run(
            LocalStore(url),
            tiny(seed=0, data_seed=0)[0],
            RunSettings(**settings),  # type: ignore[arg-type]
            program="tests.cli.programs:tiny",
            clock=SystemClock(),
            rng=random.Random(0),
        )
    )


@pytest.fixture
def run_url(tmp_path: Path) -> Path:
    """Holds a fresh run of two fragments."""
    make_run(tmp_path / "run", fragments=2)
    return tmp_path / "run"
