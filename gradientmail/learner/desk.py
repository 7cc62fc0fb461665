"""The desk: what every part of one learner's process shares."""

import random
from dataclasses import dataclass

import torch

from gradientmail.clock import Clock
from gradientmail.logs import FieldLogger
from gradientmail.run import Run
from gradientmail.store.local import Offload
from gradientmail.store.metered import Meter


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Shared by reference; nothing here changes while the learner takes part.

    Attributes:
        name: The learner's.
        incarnation: Drawn when this process joined.
        device: Where the model is.
        tags: What the learner says of itself.
        meter: Counts what the store was asked for.
    """

    run: Run
    name: str
    incarnation: str
    device: torch.device
    clock: Clock
    rng: random.Random
    offload: Offload
    meter: Meter
    log: FieldLogger
    tags: tuple[str, ...] = ()
