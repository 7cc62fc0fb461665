"""``gradientmail doctor``: what a store was seen to do, and whether a run may live there."""

import asyncio
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from gradientmail.cli.exits import OK, STORE
from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import compact_table, output
from gradientmail.clock import SystemClock, system_random
from gradientmail.config import NodeSettings
from gradientmail.doctor import Finding, Verdict, probe_store
from gradientmail.errors import GradientMailError, RunNotFoundError
from gradientmail.mailbox import Mailbox
from gradientmail.store.base import Store

STYLES = {Verdict.PASSED: "green", Verdict.WARNED: "yellow", Verdict.FAILED: "bold red"}


def run_doctor(url: str, node: NodeSettings) -> int:
    """Probe the store, print every finding, and return the exit code they make."""
    console = output()
    with console.status("probing; this takes some seconds ..."):
        findings = asyncio.run(
            probe_store(url, clock=SystemClock(), rng=system_random(), client=node.store_client)
        )
        failed = any(finding.verdict is Verdict.FAILED for finding in findings)
        here = "" if failed else with_store(url, node, _run_here)
    console.print(table_of(findings))
    if failed:
        console.print("\nno run can be created here: see what failed")
        return STORE
    console.print(f"\na run can be created here{here}")
    return OK


def table_of(findings: Sequence[Finding]) -> RenderableType:
    """Return a table of what was tried, seen, and can be done about it."""
    table = compact_table("<tried", "<result", "<seen")
    for finding in findings:
        advice = f"\n-> {finding.advice}" if finding.advice else ""
        result = Text(finding.verdict.value, style=STYLES[finding.verdict])
        table.add_row(finding.name, result, Text(f"{finding.detail}{advice}"))
    return table


async def _run_here(store: Store) -> str:
    try:
        manifest, _ = await Mailbox(store).manifest()
    except RunNotFoundError:
        return ""
    except GradientMailError as error:
        return f", but not under this URL, which holds a damaged one: {error}"
    return f", but not under this URL, which holds {manifest.run} already"
