"""The text every machine has: the library's own files, some of them never trained on."""

import re
import sysconfig
from pathlib import Path

import torch

from gradientmail.programs import source
from gradientmail.programs.source import is_held_out, library_source, source_files

ROOT = Path(sysconfig.get_path("stdlib"))


def test_only_the_librarys_own_modules_are_read_in_a_fixed_order(tmp_path: Path) -> None:
    for name in [
        "b.py",
        "a/x.py",
        "a/test/t.py",
        "site-packages/p.py",
        "a/__pycache__/c.py",
        "n.c",
    ]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert source_files(tmp_path) == ["a/x.py", "b.py"]


def test_about_one_file_in_twenty_is_held_out_by_its_path_alone() -> None:
    names = [f"package/module_{i}.py" for i in range(4000)]
    held_out = [name for name in names if is_held_out(name)]
    assert 0.04 < len(held_out) / len(names) < 0.06
    assert held_out[:2] == ["package/module_14.py", "package/module_65.py"]


def test_every_file_is_either_trained_on_or_held_out() -> None:
    parts = {False: bytearray(), True: bytearray()}
    for name in source_files(ROOT):
        parts[is_held_out(name)] += (ROOT / name).read_bytes()
    text = library_source()
    assert text.train.numpy().tobytes() == parts[False]
    assert text.held_out.numpy().tobytes() == parts[True]


def test_the_text_is_bytes_of_python() -> None:
    text = library_source()
    assert text.train.dtype == torch.uint8
    assert re.search(rb"def __init__\(self", text.held_out.numpy().tobytes())


def test_the_text_ends_before_its_limit(monkeypatch) -> None:
    monkeypatch.setattr(source, "LIMIT_BYTES", 300_000)
    text = library_source()
    assert 0 < len(text.train) + len(text.held_out) <= 300_000
