"""Every benchmark runs, at its smallest, and says what it found."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from benchmarks.__main__ import NAMES
from benchmarks.frame import Figure, in_child
from benchmarks.report import Measured

from gradientmail.testing.servers import S3Server

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "scripts"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_at_its_smallest(name: str) -> None:
    done = bench(name, "--size", "tiny", "--json")
    assert done.returncode == 0, done.stderr
    measured = msgspec.json.decode(done.stdout, type=Measured)
    assert measured.name == name
    assert any(isinstance(one, Figure) for one in measured.results)


def test_a_table_says_how_many_targets_are_met() -> None:
    done = bench("scale", "--size", "tiny")
    assert "scale, tiny" in done.stdout
    assert "targets met" in done.stdout


def test_an_unknown_name_lists_those_there_are() -> None:
    done = bench("nothing")
    assert done.returncode == 2
    assert "requests" in done.stderr


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_an_upload_makes_no_second_copy_of_the_object(
    client: str, seaweedfs_server: S3Server
) -> None:
    """Parts are read from the object itself: not even the 4 of 16 MB on their way are copied."""
    size_bytes = 320 << 20
    found = in_child(
        "benchmarks.store:upload_memory",
        f"s3://{seaweedfs_server.bucket}/memory",
        client,
        size_bytes,
        env=seaweedfs_server.environment(),
    )
    assert found["above_bytes"] < 0.15 * size_bytes
