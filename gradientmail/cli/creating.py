"""``gradientmail init``: create a run, and say what it will be."""

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.table import Table

from gradientmail.algorithm import Algorithm
from gradientmail.cli.devices import device_named
from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import compact_table, output, size
from gradientmail.clock import SystemClock, system_random
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.config import NodeSettings, RunSettings
from gradientmail.doctor import require_fit
from gradientmail.learner.parameters import exchanged
from gradientmail.learner.program import load_program
from gradientmail.operations.creating import create_run, require_no_run
from gradientmail.records.manifest import Manifest
from gradientmail.run import algorithms_of, fragment_layout, numel_of
from gradientmail.store.base import Store

COSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "closer": ("up/round", "down/round"),
    "gossip": ("up/round", "down/neighbour"),
    "nobody": (),
}
"""Columns of what a fragment costs a learner, by through whom it exchanges."""


def run_init(url: str, settings: RunSettings, node: NodeSettings, *, program: str) -> None:
    """Create the run and print it."""
    model = load_program(
        program, device=device_named(node.device), seed=settings.seed, data_seed=settings.seed
    ).model
    clock, rng = SystemClock(), system_random()

    async def create(store: Store) -> Manifest:
        await require_no_run(store)
        await require_fit(store, rng=rng)
        return await create_run(store, model, settings, program=program, clock=clock, rng=rng)

    _print(output(), url, with_store(url, node, create))


def _print(console: Console, url: str, manifest: Manifest) -> None:
    settings = manifest.settings
    sent = exchanged(manifest.tensors)
    console.print(f"created [bold]{manifest.run}[/] at {url}", soft_wrap=True)
    console.print(
        f"{settings.algorithm}: {sum(map(numel_of, sent)):,} numbers in {len(sent)} tensors, "
        f"each fragment every {settings.sync_every} steps\n"
    )
    console.print(_fragments(manifest))
    closer = f"  gradientmail closer {url}\n" if settings.exchange == "closer" else ""
    console.print(
        "\nnext, here or on any machine that reaches it:\n"
        f"{closer}"
        f"  gradientmail learner {url} --state-dir DIRECTORY\n"
        f"  gradientmail status {url}",
        soft_wrap=True,
    )


def _fragments(manifest: Manifest) -> Table:
    """Return a table of what each fragment costs a learner a round."""
    algorithms = algorithms_of(manifest)
    specs = {spec.name: spec for spec in manifest.tensors}
    exchange = manifest.settings.exchange
    columns = ("fragment", "tensors", "numbers", *COSTS[exchange], "<from ... to")
    table = compact_table(*columns)
    for index, fragment in enumerate(manifest.fragments):
        layout, algorithm = fragment_layout(fragment.entries, specs), algorithms[index]
        table.add_row(
            str(index),
            str(len(layout.slots)),
            f"{sum(slot.numel for slot in layout.slots):,}",
            *(size(form.size_bytes(None)) for form in _sent(exchange, algorithm, layout.numel)),
            f"{layout.slots[0].name} to {layout.slots[-1].name}",
        )
    return table


def _sent(exchange: str, algorithm: Algorithm, numel: int) -> tuple[PayloadFormat, ...]:
    """Return what goes up and comes down, as ``COSTS`` names it."""
    if exchange == "closer":
        down = algorithm.update_format(numel) or algorithm.params_format(numel)
        return algorithm.delta_format(numel), down
    return (algorithm.gossip_format(numel),) * len(COSTS[exchange])
