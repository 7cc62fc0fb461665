"""Every example in a docstring of the pure core is true; others need a store and a loop."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = (
    "algorithm.py",
    "config.py",
    "algorithms/*.py",
    "codecs/*.py",
    "protocol/*.py",
    "records/*.py",
)
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for pattern in CORE
    for path in sorted((ROOT / "gradientmail").glob(pattern))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_are_true(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0, "see captured output"
