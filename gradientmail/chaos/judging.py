"""One run from beginning to end, and whether it is as good as one that nothing happened to."""

import asyncio
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from safetensors.torch import load_file

from gradientmail.chaos.places import Place
from gradientmail.chaos.processes import ChaosError
from gradientmail.chaos.recovery import Recoveries
from gradientmail.chaos.scenarios import Scenario
from gradientmail.chaos.stage import Stage, staged
from gradientmail.clock import Clock
from gradientmail.errors import GradientMailError
from gradientmail.operations.exporting import export_run
from gradientmail.operations.verified import Verified
from gradientmail.operations.verifying import verify_run
from gradientmail.records.estimates import Estimates
from gradientmail.run import open_run
from gradientmail.tasks import race


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a run came to.

    Attributes:
        loss: Held-out loss of the final model, nats; None where the run did not get there.
        derived: Versions that were derived again, bit for bit.
        wrong: What must not be, a line each; the loss is judged elsewhere.
        seconds: How long it took.
    """

    scenario: str
    seed: int
    url: str
    rounds: int
    derived: int
    loss: float | None
    recoveries: Recoveries
    did: tuple[str, ...]
    wrong: tuple[str, ...]
    seconds: float
    start_s: float
    estimates: Estimates = field(default_factory=Estimates)


async def judged(  # noqa: PLR0913 - each is one thing that decides the run
    name: str,
    scenario: Scenario,
    place: Place,
    home: Path,
    *,
    seed: int,
    rounds: int,
    clock: Clock,
) -> Verdict:
    """Play a scenario to its end and judge what is left.

    Raises:
        SkippedError: it cannot be played here.
    """
    began = clock.now()
    async with staged(place, home, seed=seed, rounds=rounds, clock=clock) as stage:
        try:
            await _play(stage, scenario)
            seconds, outcome = clock.now() - began, await _outcome(stage, home)
        except ChaosError as error:
            seconds, outcome = clock.now() - began, _Outcome((str(error),))
        return Verdict(
            scenario=name,
            seed=seed,
            url=stage.url,
            rounds=stage.closed,
            derived=outcome.derived,
            loss=outcome.loss,
            recoveries=stage.recoveries,
            did=tuple(stage.did),
            wrong=outcome.wrong,
            seconds=seconds,
            start_s=stage.start_s,
            estimates=outcome.estimates,
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    wrong: tuple[str, ...]
    derived: int = 0
    loss: float | None = None
    estimates: Estimates = field(default_factory=Estimates)


async def _outcome(stage: Stage, home: Path) -> _Outcome:
    """Verify a run that came to its end, and measure its model."""
    with tempfile.TemporaryDirectory(dir=home) as scratch:
        try:
            verified = await verify_run(stage.store, Path(scratch), offload=asyncio.to_thread)
            loss = await _loss(stage, Path(scratch) / "model.safetensors")
            newest = await (await open_run(stage.store)).newest_of_all()
        except GradientMailError as error:
            return _Outcome((f"cannot be verified: {error}",))
    wrong = complaints(verified, stage.rounds)
    if not math.isfinite(loss):
        wrong.append("the held-out loss of the final model is no number")
    return _Outcome(
        tuple(wrong),
        sum(one.derived for one in verified.fragments),
        loss if math.isfinite(loss) else None,
        newest[0].estimates,
    )


async def _play(stage: Stage, scenario: Scenario) -> None:
    await stage.begin(scenario.closers, **scenario.learner)
    await race(stage.look(), _disturb(stage, scenario))
    await stage.finish()


async def _disturb(stage: Stage, scenario: Scenario) -> None:
    """Go on for as long as the run: a disturbance that has an end is no end of the run."""
    await scenario.disturb(stage)
    await asyncio.Event().wait()


def complaints(verified: Verified, rounds: int) -> list[str]:
    """Return what is wrong with a run of which everything was kept: all of it must be derived."""
    wrong = [f"{fault.key}: {fault.reason}" for fault in verified.faults]
    for one in verified.fragments:
        wrong += [
            f"fragment {one.fragment}: versions {span.first} to {span.last} not derived: "
            f"{span.reason}"
            for span in one.not_derived
        ]
    closed = sum(one.version for one in verified.fragments)
    if closed != rounds:
        wrong.append(f"{closed} rounds are closed, the run was to end after {rounds}")
    return wrong


async def _loss(stage: Stage, path: Path) -> float:
    """Return the held-out loss of what is committed."""
    program = stage.program
    await export_run(stage.store, path, model=program.model)
    program.model.load_state_dict(load_file(path))
    assert program.evaluate is not None  # noqa: S101 - the digits program has it
    return program.evaluate(program.model)
