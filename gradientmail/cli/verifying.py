"""``gradientmail verify``: what a run's bytes prove, as a table or as JSON."""

import asyncio
import tempfile
from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from gradientmail.cli.exits import DAMAGED, OK
from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import compact_table, output
from gradientmail.config import NodeSettings
from gradientmail.operations.verified import FragmentVerified, Verified
from gradientmail.operations.verifying import verify_run


def run_verify(url: str, node: NodeSettings, *, as_json: bool) -> int:
    """Verify the run, print what was found, and return the exit code it makes."""
    with tempfile.TemporaryDirectory(prefix="gradientmail-", dir=node.spool_dir) as spool:
        verified = with_store(
            url, node, lambda store: verify_run(store, Path(spool), offload=asyncio.to_thread)
        )
    if as_json:
        print(msgspec.json.encode(verified).decode())  # noqa: T201 - asked for
    else:
        output().print(rendered(verified))
    return DAMAGED if verified.faults else OK


def rendered(verified: Verified) -> RenderableType:
    """Return what a person sees of ``verified``."""
    table = compact_table("fragment", "version", "payloads", "derived", "empty", "not derived")
    for one in verified.fragments:
        missed = sum(span.last - span.first + 1 for span in one.not_derived)
        cells = (one.fragment, one.version, one.payloads, one.derived, one.empty, missed)
        table.add_row(*map(str, cells))
    faults = verified.faults
    result = Text(f"{len(faults)} faults", style="bold red") if faults else "nothing is wrong"
    return Group(
        Text(verified.run, style="bold"),
        table,
        "",
        *(Text(line, style="yellow") for one in verified.fragments for line in _missed(one)),
        *(Text(f"wrong: {fault.key}: {fault.reason}", style="red") for fault in faults),
        result,
    )


def _missed(fragment: FragmentVerified) -> list[str]:
    return [
        f"not derived: fragment {fragment.fragment}, version"
        f"{f' {one.first}' if one.first == one.last else f's {one.first} to {one.last}'}: "
        f"{one.reason}"
        for one in fragment.not_derived
    ]
