"""Held-out loss of parameters in a file, measured beside the training and not by it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import load_file

from gradientmail.demo.children import DemoError
from gradientmail.learner.program import load_program
from gradientmail.programs.gpt import GPT


class HeldOut:
    """Evaluates with the program's own ``evaluate``, in one thread, one file after another.

    Raises:
        DemoError: it is another kind of program.
    """

    def __init__(self, name: str, *, seed: int) -> None:
        program = load_program(name, device=torch.device("cpu"), seed=seed, data_seed=seed)
        if not isinstance(program.model, GPT) or program.evaluate is None:
            raise DemoError(f"{name} is no byte-level GPT with a held-out loss")
        self.model, self._evaluate = program.model, program.evaluate
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def loss(self, params: Path) -> float:
        """Return the loss of the parameters in ``params``, a safetensors file."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._loss, params)

    def loaded(self, params: Path) -> GPT:
        """Return the model with the parameters in ``params``, ready to evaluate."""
        self.model.load_state_dict(load_file(params))
        return self.model.eval()

    def _loss(self, params: Path) -> float:
        torch.set_num_threads(1)
        return self._evaluate(self.loaded(params))
