"""``gradientmail learner``: a program's training loop as a learner of a run."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from msgspec.structs import replace

from gradientmail.cli.closing import closer_beside
from gradientmail.cli.devices import device_named
from gradientmail.cli.signals import ending_on_signals
from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import count
from gradientmail.clock import Clock, SystemClock, system_random
from gradientmail.config import NodeSettings
from gradientmail.errors import NotJoinedError, SettingsError
from gradientmail.learner.program import Positioned, Program, data_seed, load_program
from gradientmail.learner.session import Learner
from gradientmail.logs import get_logger
from gradientmail.mailbox import Mailbox
from gradientmail.names import learner_name
from gradientmail.records.manifest import Manifest

REPORT_EVERY_S = 10.0


def run_learner(url: str, node: NodeSettings, *, program: str | None, with_closer: bool) -> None:
    """Train until the run is done, the program's batches end, or a signal comes."""
    manifest, _ = with_store(url, node, lambda store: Mailbox(store).manifest())
    state_dir = Path(node.state_dir) if node.state_dir else None
    node = replace(node, name=node.name or learner_name(state_dir, system_random()))
    if node.threads:
        torch.set_num_threads(node.threads)
    loaded = _load(program or _program_of(manifest), manifest, node)
    learner = Learner(
        url,
        loaded.model,
        optimizer=loaded.optimizer,
        position=loaded.batches if isinstance(loaded.batches, Positioned) else None,
        node=node,
    )
    with contextlib.ExitStack() as stack:
        if with_closer:
            stack.enter_context(closer_beside(url, node))
        stack.enter_context(ending_on_signals(learner.request_stop))
        stack.enter_context(contextlib.suppress(NotJoinedError))  # it was asked to end
        stack.enter_context(learner)
        train(learner, loaded, SystemClock(), share=node.throttle)


def train(learner: Learner, program: Program, clock: Clock, *, share: float) -> None:
    """Take the program's steps, slowed down to ``share`` of its speed."""
    program.model.train()
    _report(learner)
    report_at = clock.now() + REPORT_EVERY_S
    for batch in _until_done(learner, program):
        began = clock.now()
        if began >= report_at:
            _report(learner)
            report_at = began + REPORT_EVERY_S
        loss = program.loss(program.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        program.optimizer.step()
        program.optimizer.zero_grad()
        if share < 1.0:
            asyncio.run(clock.sleep((clock.now() - began) * (1.0 / share - 1.0)))
        samples = program.samples(batch) if learner.run.weighs_samples else 0
        learner.step(tokens=program.tokens(batch), samples=samples, loss=loss)
    _report(learner)


def _until_done(learner: Learner, program: Program) -> Iterator[object]:
    """Yield batches. It is asked before a batch is taken, so that none is taken and not used."""
    batches = iter(program.batches)
    while not learner.done:
        try:
            yield next(batches)
        except StopIteration:
            return


def _report(learner: Learner) -> None:
    at = learner.progress
    loss = "" if at.loss is None else f", loss {at.loss:.4g}"
    versions = ", ".join(map(str, at.versions))
    log = get_logger("gradientmail.learner", run=learner.run.name, learner=learner.name)
    log.info("step %d, %s tokens%s; at versions %s", at.steps, count(at.tokens), loss, versions)


def _load(name: str, manifest: Manifest, node: NodeSettings) -> Program:
    seed = manifest.settings.seed
    return load_program(
        name,
        device=device_named(node.device),
        seed=seed,
        data_seed=data_seed(seed, str(node.name)),
    )


def _program_of(manifest: Manifest) -> str:
    if manifest.program is None:
        raise SettingsError("the run names no program: give one by --program module:function")
    return manifest.program
