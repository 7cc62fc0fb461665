"""How log lines look: for people, or one JSON object a line. Both go to stderr."""

import logging
from datetime import UTC, datetime
from typing import Final

import msgspec
from rich.console import Console
from rich.text import Text

from gradientmail.config import NodeSettings
from gradientmail.logs import FIELDS

CLI_LOGGER: Final = "gradientmail.cli"
"""What it says is the command's own answer, and is shown without a time before it."""

STYLES: Final = {"debug": "dim", "info": "", "warning": "yellow", "error": "bold red"}


def configure_logging(node: NodeSettings) -> None:
    """Log what ``node`` asks for; of other libraries only their warnings."""
    handler = logging.StreamHandler() if node.log_format == "json" else HumanHandler()
    handler.setFormatter(JsonFormatter() if node.log_format == "json" else HumanFormatter())
    root = logging.getLogger()
    for before in root.handlers[:]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("gradientmail").setLevel(node.log_level.upper())
    logging.captureWarnings(capture=True)


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """Return which run, learner, closer, fragment and version a line is about, where known."""
    return {name: vars(record)[name] for name in FIELDS if name in vars(record)}


class JsonFormatter(logging.Formatter):
    """``{"ts": ..., "level": ..., "logger": ..., "message": ..., "run": ..., ...}``."""

    def format(self, record: logging.LogRecord) -> str:
        """See ``logging.Formatter.format``."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class HumanFormatter(logging.Formatter):
    """``12:03:45 closed round 3 with alice, bob  closer=c1 fragment=0 version=4``."""

    def __init__(self) -> None:
        super().__init__("%(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """See ``logging.Formatter.formatMessage``."""
        level = record.levelname.lower()
        label = "" if level == "info" else f"{level}: "
        if record.name == CLI_LOGGER:
            return f"{label}{record.message}"
        fields = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        when = self.formatTime(record, self.datefmt)
        return f"{when} {label}{record.message}  {fields}".rstrip()


class HumanHandler(logging.Handler):
    """Lines coloured by level where stderr is a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler.emit``."""
        style = STYLES.get(record.levelname.lower(), "")
        self._console.print(Text(self.format(record), style=style))
