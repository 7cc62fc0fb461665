"""Ceph's RADOS gateway on one monitor and one store in memory: enough to ask it what it keeps."""

import asyncio
import contextlib
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from gradientmail.clock import SystemClock, system_random
from gradientmail.testing.servers import S3Server, free_ports

PACKAGES = "radosgw ceph-mon ceph-osd"
FSID = "11111111-2222-3333-4444-555555555555"
CONFIG = """
[global]
fsid = {fsid}
mon host = v1:127.0.0.1:{monitor}
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
osd crush update on start = false
osd class update on start = false
osd objectstore = memstore
memstore device bytes = 4294967296
mon allow pool size one = true
mon data = {home}/mon
osd data = {home}/osd
mon cluster log file = {home}/cluster.log
run dir = {home}
log file = {home}/$name.log
admin socket = {home}/$name.$pid.asok
keyring = {home}/keyring
public network = 127.0.0.0/8
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw data = {home}/rgw
"""


def version() -> str:
    """Return the version that is installed.

    Raises:
        RuntimeError: none is.
    """
    if shutil.which("radosgw") is None or shutil.which("ceph-osd") is None:
        raise RuntimeError(f"not installed: apt-get install {PACKAGES}")
    return _output("radosgw", "--version").split()[2]


@contextlib.contextmanager
def ceph(home: Path) -> Iterator[S3Server]:
    """Run monitor, store and gateway in ``home``, which must be a short path: it holds sockets."""
    monitor, gateway = free_ports(2, system_random())
    for name in ("mon", "osd", "rgw"):
        (home / name).mkdir()
    (home / "keyring").touch()
    config = home / "ceph.conf"
    config.write_text(CONFIG.format(fsid=FSID, monitor=monitor, gateway=gateway, home=home))
    common, root = ("-c", str(config)), ("--setuser", "root", "--setgroup", "root")
    names = ("--fsid", FSID, str(home / "monmap"))
    _output("monmaptool", "--create", "--addv", "a", f"[v1:127.0.0.1:{monitor}]", *names)
    monmap = ("--mkfs", "--monmap", str(home / "monmap"))
    _output("ceph-mon", *common, "-i", "a", *monmap, *root)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_daemon(home, "ceph-mon", *common, "-i", "a", *root))
        _output("ceph-osd", *common, "-i", "0", "--mkfs", *root)
        store = (home / "osd" / "fsid").read_text().strip()
        _output("ceph", *common, "osd", "new", store, "0")
        place = ("osd.0", "1.0", "host=here", "root=default")
        _output("ceph", *common, "osd", "crush", "add", *place)
        stack.enter_context(_daemon(home, "ceph-osd", *common, "-i", "0", *root))
        stack.enter_context(_daemon(home, "radosgw", *common, "-n", "client.rgw", *root))
        server = S3Server(f"http://127.0.0.1:{gateway}")
        if not asyncio.run(_answers(server.endpoint)):
            raise RuntimeError("the gateway does not answer")
        user = ("--uid", "test", "--display-name", "test")
        keys = ("--access-key", server.access_key_id, "--secret-key", server.secret_access_key)
        _output("radosgw-admin", *common, "-n", "client.rgw", "user", "create", *user, *keys)
        yield server


def _output(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} failed: {done.stderr[-500:]}")
    return done.stdout


@contextlib.contextmanager
def _daemon(home: Path, *words: str) -> Iterator[None]:
    with (home / f"{words[0]}.out").open("wb") as output:
        process = subprocess.Popen([*words, "-f"], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _answers(endpoint: str) -> bool:
    for _ in range(120):
        with contextlib.suppress(OSError):
            await asyncio.to_thread(urllib.request.urlopen, endpoint, timeout=2)
            return True
        await SystemClock().sleep(0.5)
    return False
