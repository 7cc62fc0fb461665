"""A race of several operating-system processes, as learners and closers really are."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from typing import cast

from gradientmail.doctor.findings import Complaint
from gradientmail.doctor.racing import Attempt
from gradientmail.store.base import Created


@contextlib.asynccontextmanager
async def racers(
    url: str, client: str, *, processes: int, creators: int
) -> AsyncIterator[Sequence[Process]]:
    """Start processes that are ready to race, ``creators`` in all, and end them."""
    each = str(creators // processes)
    command = [sys.executable, "-m", "gradientmail.doctor.racer", url, client, each]
    started: list[Process] = []
    try:
        for _ in range(processes):
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE
            )
            started.append(process)
        await asyncio.gather(*map(_answer, started))
        yield started
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def race_processes(started: Sequence[Process], key: str) -> list[Attempt]:
    """Let all processes create ``key`` at once."""
    for process in started:
        cast("asyncio.StreamWriter", process.stdin).write(f"{key}\n".encode())
    answers = await asyncio.gather(*map(_answer, started))
    told = (attempt for answer in answers for attempt in json.loads(answer))
    return [Attempt(body, outcome and Created(outcome)) for body, outcome in told]


async def _answer(process: Process) -> bytes:
    if line := await cast("asyncio.StreamReader", process.stdout).readline():
        return line
    said = await cast("asyncio.StreamReader", process.stderr).read()
    last = said.decode(errors="replace").strip().rpartition("\n")[2]
    raise Complaint(f"a racing process ended: {last}", "run the doctor again")
