"""The demo's GPT, too small to learn much."""

import torch

from gradientmail.learner.program import Program
from gradientmail.programs import gpt

SHAPE = gpt.Shape(layers=1, width=32, heads=2, context=32)


def tiny(device: torch.device, seed: int, data_seed: int) -> Program:
    return gpt.program(device=device, seed=seed, data_seed=data_seed, shape=SHAPE, batch=2)
