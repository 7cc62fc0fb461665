"""A visit gathers, judges and asks the bucket; it writes nothing."""

import asyncio
import random

from gradientmail.config import RunSettings
from gradientmail.doctor.findings import Verdict
from gradientmail.doctor.linting import lint_run
from gradientmail.doctor.rules import RULES
from gradientmail.operations.creating import create_run
from gradientmail.store.memory import MemoryStore
from gradientmail.testing.clock import SkippingClock
from tests.operations.models import small_model


def test_a_visit_says_how_long_it_takes_and_leaves_no_trace() -> None:
    async def scenario() -> None:
        store, clock = MemoryStore(), SkippingClock()
        settings = RunSettings(presence_s=100.0, lease_s=30.0)
        await create_run(store, small_model(), settings, clock=clock, rng=random.Random(0))
        before = await store.list("")
        told: list[tuple[str, float]] = []
        findings = await lint_run(
            store, "memory://x", clock=clock, observing=lambda *what: told.append(what)
        )
        assert await store.list("") == before
        assert [seconds for _, seconds in told] == [51.0]
        assert [one.name for one in findings][-1] == "lifecycle"
        assert len(findings) == len(RULES["closer"]) + 1
        failed = {one.name for one in findings if one.verdict is Verdict.FAILED}
        assert failed == {"closer", "learners"}

    asyncio.run(scenario())
