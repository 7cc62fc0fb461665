"""What the demo trains: the built-in GPT, set to learn most from 100 seconds of one core."""

from dataclasses import replace

import torch

from gradientmail.learner.program import Program
from gradientmail.programs import gpt
from gradientmail.programs.source import library_source

SHAPE = gpt.Shape(context=64)
BATCH, EVALUATED = 1, 128
LEARNING_RATE = 5e-4
"""Of 3.5, 5, 7 and 10e-4 the one with which the fastest learner alone ends lowest."""


def program(device: torch.device, seed: int, data_seed: int) -> Program:
    """Return the program, for the run and for the learner alone."""
    trained = gpt.program(
        device=device,
        seed=seed,
        data_seed=data_seed,
        shape=SHAPE,
        batch=BATCH,
        learning_rate=LEARNING_RATE,
    )
    held_out = gpt.HeldOut(library_source(), SHAPE.context, device, count=EVALUATED)
    return replace(trained, evaluate=held_out)
