import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gradientmail.demo.children import Children, DemoError

UNTIL_SIGNALLED = "import signal; print('ready', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + UNTIL_SIGNALLED
LOGS_AND_FAILS = "import sys; print('last words', file=sys.stderr); sys.exit(5)"


def play(logs: Path, act: Callable[[Children], Awaitable[None]]) -> None:
    async def played() -> None:
        async with asyncio.timeout(30.0), Children(logs, {"GIVEN": "yes"}) as children:
            await act(children)

    asyncio.run(played())


async def started(children: Children, name: str, code: str) -> int:
    lines = await children.start(name, sys.executable, "-c", code)
    assert await lines.readline() == b"ready\n"
    pid = children.pid(name)
    assert pid is not None
    return pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_leaving_ends_every_process(tmp_path: Path) -> None:
    pids = []

    async def act(children: Children) -> None:
        pids.extend([await started(children, name, UNTIL_SIGNALLED) for name in "ab"])

    play(tmp_path, act)
    assert not any(map(is_alive, pids))


def test_an_error_ends_every_process_too(tmp_path: Path) -> None:
    pids = []

    async def act(children: Children) -> None:
        pids.append(await started(children, "a", UNTIL_SIGNALLED))
        raise KeyError

    with pytest.raises(KeyError):
        play(tmp_path, act)
    assert not is_alive(pids[0])


def test_who_is_deaf_to_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradientmail.demo.children.END_S", 0.1)
    pids = []

    async def act(children: Children) -> None:
        pids.append(await started(children, "a", DEAF))

    play(tmp_path, act)
    assert not is_alive(pids[0])


def test_a_kill_is_sigkill_and_takes_the_name_off_the_list(tmp_path: Path) -> None:
    async def act(children: Children) -> None:
        pid = await started(children, "a", DEAF)
        await children.kill("a")
        assert not is_alive(pid)
        assert (children.pid("a"), children.state("a")) == (None, "killed")
        children.check()

    play(tmp_path, act)


def test_an_unexpected_death_is_told_with_the_last_words(tmp_path: Path) -> None:
    async def act(children: Children) -> None:
        await children.start("a", sys.executable, "-c", LOGS_AND_FAILS)
        while True:
            children.check()
            await asyncio.sleep(0.01)

    with pytest.raises(
        DemoError, match=r"a ended with exit code 5(.|\n)*a\.jsonl(.|\n)*last words"
    ):
        play(tmp_path, act)


def test_an_early_end_is_unexpected_even_without_an_error(tmp_path: Path) -> None:
    async def act(children: Children) -> None:
        await children.start("a", sys.executable, "-c", "pass")
        while True:
            children.check()
            await asyncio.sleep(0.01)

    with pytest.raises(DemoError, match=r"exit code 0(.|\n)*logged nothing"):
        play(tmp_path, act)


def test_the_output_of_a_command_is_returned_and_its_failure_raised(tmp_path: Path) -> None:
    async def act(children: Children) -> None:
        echo = "import os; print(os.environ['GIVEN'])"
        assert await children.output("a", sys.executable, "-c", echo) == "yes\n"
        assert children.state("a") == "ended"
        with pytest.raises(DemoError, match="failed with exit code 5"):
            await children.output("b", sys.executable, "-c", LOGS_AND_FAILS)
        children.check()

    play(tmp_path, act)


def test_who_does_not_end_in_time_is_an_error_and_still_ended(tmp_path: Path) -> None:
    pids = []

    async def act(children: Children) -> None:
        pids.append(await started(children, "a", UNTIL_SIGNALLED))
        await children.finish("a", limit_s=0.05)

    with pytest.raises(DemoError, match="did not end within"):
        play(tmp_path, act)
    assert not is_alive(pids[0])


def test_a_group_is_ended_with_its_leader(tmp_path: Path) -> None:
    """A closer beside a learner is a child of that learner."""
    pids = []

    async def act(children: Children) -> None:
        code = (
            "import subprocess, sys, signal; "
            f"child = subprocess.Popen([sys.executable, '-c', {UNTIL_SIGNALLED!r}],"
            " stdout=subprocess.PIPE); child.stdout.readline(); "
            "print(child.pid, flush=True); signal.pause()"
        )
        lines = await children.start("a", sys.executable, "-c", code)
        pids.append(int(await lines.readline()))
        await children.kill("a")
        while _lives_on(pids[0]):  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.01)

    play(tmp_path, act)


def _lives_on(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
