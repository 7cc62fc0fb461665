"""``gradientmail stop``."""

from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import output
from gradientmail.clock import system_random
from gradientmail.config import NodeSettings
from gradientmail.operations.stopping import request_stop


def run_stop(url: str, node: NodeSettings, *, reason: str) -> None:
    """Ask the run to end, and say so."""
    asked = with_store(url, node, lambda store: request_stop(store, reason, rng=system_random()))
    output().print(
        "the run ends after the rounds in flight" if asked else "the run was asked to end before"
    )
