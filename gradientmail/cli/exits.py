"""Exit codes, and the one place that turns an exception into a line and a code."""

import functools
import logging
import signal
from collections.abc import Callable, Mapping
from typing import Final, ParamSpec

import typer

from gradientmail.cli.logs import CLI_LOGGER
from gradientmail.errors import (
    ContractError,
    GradientMailError,
    PayloadError,
    RecordError,
    RunExistsError,
    RunNotFoundError,
    SettingsError,
    StoreError,
)

P = ParamSpec("P")

OK: Final = 0
UNEXPECTED: Final = 1
USAGE: Final = 2
STORE: Final = 4
DAMAGED: Final = 6
ILL: Final = 7
"""``doctor`` looked at a run, and it does not go on."""
SIGNALLED: Final = 128
"""Plus the number of the signal that ended us at once: 130 for Ctrl-C, 143 for SIGTERM."""

CODES: Final[Mapping[type[Exception], int]] = {
    SettingsError: USAGE,
    RunNotFoundError: 3,
    RunExistsError: 3,
    StoreError: STORE,
    ContractError: 5,
    RecordError: DAMAGED,
    PayloadError: DAMAGED,
}

EPILOG: Final = (
    "Exit codes: 0 done, 1 unexpected error, 2 wrong argument or setting, 3 the run is missing or "
    "already exists, 4 the store refuses, is unfit or does not answer, 5 the model is not the "
    "run's, 6 damaged records, 7 doctor found a run that does not go on, 130 or 143 ended at once "
    "by a second Ctrl-C or SIGTERM."
)

log = logging.getLogger(CLI_LOGGER)


def exits(command: Callable[P, int | None]) -> Callable[P, None]:
    """Make ``command`` exit with the code it returns, or with the code of what it raises.

    The traceback is for ``--log-level debug``.
    """

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = command(*args, **kwargs)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            code = SIGNALLED + signal.SIGINT
        except Exception as error:  # noqa: BLE001 - every error ends here, as a line and a code
            code = report(error)
        raise typer.Exit(code or OK)

    return wrapped


def report(error: Exception) -> int:
    """Log ``error`` as one line that says what to change; return the exit code for it."""
    detail = error if log.isEnabledFor(logging.DEBUG) else None
    if isinstance(error, GradientMailError):
        log.error("%s", error, exc_info=detail)
    else:
        hint = "" if detail else " (--log-level debug shows where)"
        log.error("%s: %s%s", type(error).__name__, error, hint, exc_info=detail)
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), UNEXPECTED)
