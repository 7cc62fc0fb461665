"""Loggers whose every line says which run, learner, closer, fragment and version it is about."""

import logging
from collections.abc import MutableMapping
from typing import Any, Final

FIELDS: Final = ("run", "learner", "closer", "fragment", "version")
"""Attributes a log record may carry; what a formatter shows where they are known."""


class FieldLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger with fields of its own, added to those of each call.

    >>> log = FieldLogger(logging.getLogger("gradientmail.closer"), {"run": "r1"})
    >>> log.info("closed", extra={"fragment": 0, "version": 7})
    """

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Add the adapter's fields to the call's, which win."""
        return msg, {**kwargs, "extra": {**(self.extra or {}), **kwargs.get("extra", {})}}


def get_logger(name: str, **fields: str) -> FieldLogger:
    """Return the logger ``name`` with ``fields`` on every line."""
    return FieldLogger(logging.getLogger(name), fields)
