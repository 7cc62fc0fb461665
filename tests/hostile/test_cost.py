"""Hostile mail costs a closer a bounded amount of memory, whatever its size.

What it costs of time is printed with ``pytest -s`` and stands in ``docs/promises.md``.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from gradientmail.closer.fragment import MAX_REJECTIONS

MEMORY_CAP_BYTES = 64_000_000
HUGE_HINT = b"[" + b",".join([b"{}"] * 5_000_000) + b"]"


def test_the_whole_corpus_costs_less_than_64_megabytes(tmp_path: Path) -> None:
    out = tmp_path / "corpus"
    python("scripts/hostile.py", out, "--codec", "I8")
    learners = out / "I8" / "learners"
    learners.mkdir()
    for number in range(5):
        (learners / f"huge-{number}.json").write_bytes(HUGE_HINT)
    said = json.loads(python("-m", "tests.hostile.child", out / "I8", tmp_path / "scratch"))
    assert said["objects"] >= 64
    assert said["peak_bytes"] < MEMORY_CAP_BYTES
    print({name: said[name] for name in ("objects", "peak_bytes", "cpu_s", "slowest_s")})
    expected = {one["key"]: one for one in json.loads((out / "I8.json").read_text())}
    for key, reason in said["outcome"].items():
        assert (reason is None) == (expected[key]["outcome"] == "accepted")
        assert reason is None or re.search(expected[key]["reason"], reason)
    rejected = [one for one in expected.values() if one["outcome"] == "rejected"]
    named = [reason for reason in said["outcome"].values() if reason is not None]
    assert len(named) == min(len(rejected), MAX_REJECTIONS)


def python(*words: object) -> str:
    """Return what a Python process of its own prints."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
