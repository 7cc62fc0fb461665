"""A closer's process that meets the hostile mail of a run, and says what it cost.

python -m tests.hostile.child RUN SCRATCH
"""

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from gradientmail.clock import SystemClock
from gradientmail.closer.desk import Desk
from gradientmail.closer.fleet import Fleet
from gradientmail.closer.fragment import FragmentCloser
from gradientmail.closer.intake import Intake
from gradientmail.closer.spool import Spool
from gradientmail.logs import get_logger
from gradientmail.records import keys
from gradientmail.run import Run, open_run
from gradientmail.store.local import LocalStore
from gradientmail.testing.forging import Forger


def peak_bytes() -> int:
    """Most memory this process ever held; unlike ``ru_maxrss`` it begins anew at exec."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


async def close(run: Run, spool: Spool, learners: frozenset[str]) -> dict[str, str | None]:
    """Close one round that waits for ``learners``; return why each object was rejected."""
    desk = Desk(
        run=run,
        clock=SystemClock(),
        rng=random.Random(0),
        offload=asyncio.to_thread,
        spool=spool,
        log=get_logger("gradientmail.closer"),
        name="closer",
        term=1,
    )
    closer = FragmentCloser(desk, await run.newest(0))
    version = await closer.close_next(lambda: learners, lambda _: None)
    assert version.record is not None
    accepted = dict.fromkeys(used.key for used in version.record.participants)
    return accepted | {one.key: one.reason for one in version.record.rejected}


async def main(directory: Path, scratch: Path) -> None:
    store = LocalStore(directory)
    run, spool = await open_run(store), Spool(scratch, store)
    warm = Forger(run, run.origin(0))
    mail = [entry.key for entry in await store.list(keys.mail_of(0))]
    learners = {parsed.learner for key in mail if (parsed := keys.parse_mail(key))}
    named = frozenset(name for name in learners if name != "eve")
    warm_run = LocalStore(scratch / "warm")
    await warm_run.put("manifest.json", [(directory / "manifest.json").read_bytes()])
    ref = run.origin(0).params
    await warm_run.put(ref.key, [(directory / ref.key).read_bytes()])
    letter = warm.letter("warm")
    await warm_run.put(letter.key, [letter.body()])
    await close(await open_run(warm_run), Spool(scratch / "spool", warm_run), frozenset())

    slowest, intake_judge = [0.0], Intake.judge

    async def judge(self: Intake, *words: Any) -> Any:
        start = time.thread_time()
        verdict = await intake_judge(self, *words)
        slowest[0] = max(slowest[0], time.thread_time() - start)
        return verdict

    Intake.judge = judge  # type: ignore[method-assign]
    before, began = peak_bytes(), time.process_time()
    await Fleet(run.mailbox, SystemClock(), run=run.name, presence_s=60.0).look()
    outcome = await close(run, spool, named)
    cost = {
        "peak_bytes": peak_bytes() - before,
        "cpu_s": time.process_time() - began,
        "slowest_s": slowest[0],
    }
    print(json.dumps({**cost, "objects": len(mail), "outcome": outcome}))


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
