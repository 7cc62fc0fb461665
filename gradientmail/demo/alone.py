"""The fastest learner alone: the same program without a run, as a process of its own.

``python -m gradientmail.demo.alone PROGRAM SEED DATA_SEED SECONDS EVERY_S DIRECTORY`` trains at
full speed and prints a JSON line each second. Every ``EVERY_S`` and at the end it also writes its
parameters, which the demo evaluates, as it evaluates a run's: training pays for no evaluation.
"""

import sys
from pathlib import Path

import msgspec
import torch
from safetensors.torch import save_file

from gradientmail.clock import Clock, SystemClock
from gradientmail.demo.story import Alone
from gradientmail.learner.program import Program, load_program

REPORT_S = 1.0


def train_alone(
    program: Program, clock: Clock, *, seconds: float, every_s: float, to: Path
) -> None:
    """Take the program's steps for ``seconds``."""
    program.model.train()
    began = clock.now()
    reported_s, written_s = 0.0, 0.0
    _print(Alone(at_s=0.0, steps=0, params=_written(program, to / "0.safetensors")))
    for steps, batch in enumerate(program.batches, start=1):
        loss = program.loss(program.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        program.optimizer.step()
        program.optimizer.zero_grad()
        at_s = clock.now() - began
        ends = at_s >= seconds
        params = None
        if ends or at_s - written_s >= every_s:
            params, written_s = _written(program, to / f"{steps}.safetensors"), at_s
        if params or at_s - reported_s >= REPORT_S:
            reported_s = at_s
            _print(Alone(at_s=at_s, steps=steps, loss=loss.item(), params=params))
        if ends:
            return


def _written(program: Program, path: Path) -> str:
    """Write the parameters, tied ones under each of their names."""
    save_file({name: value.clone() for name, value in program.model.state_dict().items()}, path)
    return str(path)


def _print(line: Alone) -> None:
    print(msgspec.json.encode(line).decode(), flush=True)  # noqa: T201 - it is the demo's to read


def _main() -> None:
    name, seed, data_seed, seconds, every_s, to = sys.argv[1:]
    program = load_program(
        name, device=torch.device("cpu"), seed=int(seed), data_seed=int(data_seed)
    )
    train_alone(
        program, SystemClock(), seconds=float(seconds), every_s=float(every_s), to=Path(to)
    )


if __name__ == "__main__":
    _main()
