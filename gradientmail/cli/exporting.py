"""``gradientmail export``: the model as a file, whole where the run's program can be had."""

import logging
from pathlib import Path

import torch
from torch import nn

from gradientmail.cli.logs import CLI_LOGGER
from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import output
from gradientmail.config import NodeSettings
from gradientmail.errors import SettingsError
from gradientmail.learner.program import load_program
from gradientmail.mailbox import Mailbox
from gradientmail.operations.exporting import Exported, export_run
from gradientmail.records.manifest import Manifest
from gradientmail.store.base import Store

log = logging.getLogger(CLI_LOGGER)


def run_export(
    url: str,
    out: Path,
    node: NodeSettings,
    *,
    version: int | None,
    learner: str | None,
    program: str | None,
) -> None:
    """Write the file and say what is in it."""

    async def export(store: Store) -> Exported:
        manifest, _ = await Mailbox(store).manifest()
        model = _model(manifest, program)
        return await export_run(store, out, version=version, learner=learner, model=model)

    exported = with_store(url, node, export)
    numbers = ", ".join(map(str, exported.versions))
    whose = f", the mean of {', '.join(exported.learners)}" if exported.learners else ""
    size = out.stat().st_size
    output().print(
        f"wrote {out}: {size:,} bytes, fragments at version {numbers}{whose}", soft_wrap=True
    )


def _model(manifest: Manifest, program: str | None) -> nn.Module | None:
    """Return the program's model: it has the user's names, and what the run does not exchange."""
    name = program or manifest.program
    if name is None:
        return None
    seed = manifest.settings.seed
    try:
        return load_program(name, device=torch.device("cpu"), seed=seed, data_seed=seed).model
    except SettingsError as error:
        if program is not None:
            raise
        log.warning("exporting without the run's program: %s", error)
        return None
