"""``gradientmail doctor``: whether a run may live in a store, or how the one there is."""

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from gradientmail.cli.exits import ILL, OK, STORE
from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import compact_table, duration, output
from gradientmail.clock import SystemClock, system_random
from gradientmail.config import NodeSettings
from gradientmail.doctor import Finding, Verdict, kernels_finding, lint_run, probe_store, worst
from gradientmail.errors import RunNotFoundError, StoreError
from gradientmail.store.base import Store

STYLES = {Verdict.PASSED: "green", Verdict.WARNED: "yellow", Verdict.FAILED: "bold red"}

SUMMARIES = {
    Verdict.PASSED: "all is well",
    Verdict.WARNED: "nothing failed; see what warned",
    Verdict.FAILED: "the run needs help: see what failed",
}


DEADLINE_S = 30.0
"""A store that does not answer for so long is itself what is wrong."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gradientmail doctor --json`` prints; ``run`` is None where a store was probed."""

    run: str | None
    verdict: Verdict
    findings: tuple[Finding, ...]


def run_doctor(url: str, node: NodeSettings, *, as_json: bool = False) -> int:
    """Lint the run at ``url``, or probe the store where none is; return the exit code."""
    impatient = replace(node, retry_deadline_s=min(node.retry_deadline_s, DEADLINE_S))
    try:
        diagnosis = _of_run(url, impatient)
    except (RunNotFoundError, StoreError):
        diagnosis = _of_store(url, node)
    if as_json:
        print(msgspec.json.encode(diagnosis).decode())  # noqa: T201 - asked for
    else:
        output().print(table_of(diagnosis.findings))
        output().print(f"\n{_summary(diagnosis)}")
    if diagnosis.verdict is not Verdict.FAILED:
        return OK
    return STORE if diagnosis.run is None else ILL


def _of_run(url: str, node: NodeSettings) -> Diagnosis:
    waiting = output(stderr=True).status("looking at the run ...")
    name = ""

    def observing(run: str, seconds: float) -> None:
        nonlocal name
        name = run
        if seconds:
            waiting.update(f"observing {run} for {duration(seconds)} ...")

    async def lint(store: Store) -> Sequence[Finding]:
        return await lint_run(store, url, clock=SystemClock(), observing=observing)

    with waiting:
        findings = with_store(url, node, lint)
    return Diagnosis(run=name, verdict=worst(findings), findings=tuple(findings))


def _of_store(url: str, node: NodeSettings) -> Diagnosis:
    with output(stderr=True).status("probing; this takes some seconds ..."):
        findings = asyncio.run(
            probe_store(url, clock=SystemClock(), rng=system_random(), client=node.store_client)
        )
    found = (*findings, kernels_finding())
    return Diagnosis(run=None, verdict=worst(found), findings=found)


def _summary(diagnosis: Diagnosis) -> str:
    if diagnosis.run is not None:
        return f"{diagnosis.run}: {SUMMARIES[diagnosis.verdict]}"
    if diagnosis.verdict is Verdict.FAILED:
        return "no run can be created here: see what failed"
    return "a run can be created here"


def table_of(findings: Sequence[Finding]) -> RenderableType:
    """Return a table of what was looked at, seen, means and can be done about it."""
    table = compact_table("<tried", "<result", "<seen")
    for finding in findings:
        lines = [finding.detail, finding.meaning, finding.advice and f"-> {finding.advice}"]
        result = Text(finding.verdict.value, style=STYLES[finding.verdict])
        table.add_row(finding.name, result, Text("\n".join(filter(None, lines))))
    return table
