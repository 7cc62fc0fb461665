"""A spool's directory is gone with its process, however that ended."""

import subprocess
import sys
from pathlib import Path

from gradientmail.closer.scratch import PREFIX, scratch_directory

CHILD = """
import sys
from pathlib import Path
from gradientmail.closer.scratch import scratch_directory
with scratch_directory(Path(sys.argv[1])) as own:
    (own / "payload").write_bytes(b"x")
    print(own, flush=True)
    sys.stdin.read()
"""


def directories(parent: Path) -> list[Path]:
    return sorted(parent.glob(f"{PREFIX}*"))


def start(parent: Path) -> tuple["subprocess.Popen[str]", Path]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_it_is_made_where_it_is_to_be_and_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    with scratch_directory(tmp_path / "new") as own:
        assert own.parent == tmp_path / "new"
        (own / "payload").write_bytes(b"x")
    assert directories(tmp_path / "new") == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(
    tmp_path: Path,
) -> None:
    killed, left = start(tmp_path)
    living, used = start(tmp_path)
    killed.kill()
    killed.wait()
    assert (left / "payload").exists()
    with scratch_directory(tmp_path) as own:
        assert directories(tmp_path) == sorted([own, used])
        assert (used / "payload").exists()
    living.communicate("")
    assert living.returncode == 0
    assert directories(tmp_path) == []


def test_a_directory_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}of-another-program").mkdir()
    with scratch_directory(tmp_path):
        pass
    assert len(directories(tmp_path)) == 1
