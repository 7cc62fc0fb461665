"""The doctor's visit to a live run: gather, then judge."""

from collections.abc import Callable, Sequence

from gradientmail.clock import Clock
from gradientmail.doctor.facts import gather_facts
from gradientmail.doctor.findings import Finding
from gradientmail.doctor.lifecycle import lifecycle_finding
from gradientmail.doctor.rules import judge_run
from gradientmail.doctor.skew import clock_finding
from gradientmail.run import open_run
from gradientmail.store.base import Store


async def lint_run(
    store: Store, url: str, *, clock: Clock, observing: Callable[[str, float], None]
) -> Sequence[Finding]:
    """Judge the run in ``store``, which is at ``url``; nothing is written.

    ``observing`` is told the run's name and how long it is observed.

    Raises:
        RunNotFoundError: there is none.
        RecordError: its manifest or a commit is damaged.
    """
    run = await open_run(store)
    facts = await gather_facts(run, clock, lambda seconds: observing(run.name, seconds))
    findings = judge_run(facts)
    findings.append(await lifecycle_finding(url))
    if finding := await clock_finding(url, clock):
        findings.append(finding)
    return findings
