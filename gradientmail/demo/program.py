"""What the demo trains: the built-in GPT, set to learn most from 100 seconds of one core."""

import torch

from gradientmail.learner.program import Program
from gradientmail.programs import gpt

BATCH = 1
LEARNING_RATE = 7e-4
"""Of batches 1, 2 and 4 and rates 0.5 to 2e-3, 1 with 0.7 to 1e-3 served the fastest learner alone
best, and the run too (``docs/log.md``)."""


def program(device: torch.device, seed: int, data_seed: int) -> Program:
    """Return the program, for the run and for the learner alone."""
    return gpt.program(
        device=device, seed=seed, data_seed=data_seed, batch=BATCH, learning_rate=LEARNING_RATE
    )
