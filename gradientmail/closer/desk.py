"""The desk: what every part of one closer's process shares."""

import random
from dataclasses import dataclass

from gradientmail.clock import Clock
from gradientmail.closer.spool import Spool
from gradientmail.logs import FieldLogger
from gradientmail.run import Run
from gradientmail.store.local import Offload


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Shared by reference; nothing here changes while the closer holds one term.

    Attributes:
        name: The closer's.
        term: The lease's term it holds.
    """

    run: Run
    clock: Clock
    rng: random.Random
    offload: Offload
    spool: Spool
    log: FieldLogger
    name: str
    term: int
