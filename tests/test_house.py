"""House rules that no linter states. A failure lists every offender at once."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gradientmail"
MODULES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}
TREES = {name: ast.parse(text) for name, text in MODULES.items()}

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50

# Word that docs/glossary.md retired -> the word to write instead.
RETIRED = {
    "syncer": "closer",
    "worker": "learner",
    "replica": "learner",
    "outer gradient": "pseudo-gradient",
    "server optimizer": "outer optimizer",
    "min_clients": "quorum",
}

# Formats that run code when they are read; torch.load and torch.save are pickle inside.
UNSAFE = (
    "pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "torch.load",
    "torch.save",
)

# What clock.py alone may touch: elsewhere time and chance are arguments.
CLOCK_MODULE = "gradientmail/clock.py"
CLOCKS = (
    "time",
    "asyncio.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "secrets",
    "os.urandom",
    "uuid",
)


def offenders(rule: Callable[[str, ast.Module], object]) -> dict[str, object]:
    """Return what ``rule`` finds in each module, without those where it finds nothing."""
    found = {name: rule(MODULES[name], tree) for name, tree in TREES.items()}
    return {name: finding for name, finding in found.items() if finding}


def names_used(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted name of every import and every attribute chain."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def banned_in(tree: ast.Module, banned: tuple[str, ...]) -> set[str]:
    return {
        name
        for name in names_used(tree)
        if any(name == word or name.startswith(f"{word}.") for word in banned)
    }


def test_a_module_fits_in_the_head() -> None:
    lengths = {name: len(text.splitlines()) for name, text in MODULES.items()}
    assert not {name: n for name, n in lengths.items() if n > MAX_MODULE_LINES}


def test_a_function_fits_on_a_screen() -> None:
    def too_long(_text: str, tree: ast.Module) -> dict[str, int]:
        functions = [
            n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        lengths = {f.name: (f.end_lineno or f.lineno) - f.lineno + 1 for f in functions}
        return {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES}

    assert not offenders(too_long)


def test_the_vocabulary_is_the_glossarys() -> None:
    def retired(text: str, _tree: ast.Module) -> dict[str, str]:
        lines = " ".join(text.lower().split())
        return {old: new for old, new in RETIRED.items() if re.search(rf"\b{old}s?\b", lines)}

    assert not offenders(retired)


def test_nothing_reads_or_writes_a_format_that_runs_code() -> None:
    assert not offenders(lambda _text, tree: banned_in(tree, UNSAFE))


def test_only_the_clock_module_reads_time_and_entropy() -> None:
    found = offenders(lambda _text, tree: banned_in(tree, CLOCKS))
    assert found.keys() == {CLOCK_MODULE}


def test_code_is_ascii() -> None:
    files = [
        p for folder in ("gradientmail", "tests", "scripts") for p in (ROOT / folder).rglob("*")
    ]
    code = [p for p in files if p.is_file() and p.suffix in {".py", ".sh", ""}]
    assert not [str(p.relative_to(ROOT)) for p in code if not p.read_bytes().isascii()]


def test_every_public_name_says_what_it_is() -> None:
    def undocumented(_text: str, tree: ast.Module) -> list[str]:
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        public = [n for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]
        missing = [node.name for node in public if not ast.get_docstring(node)]
        return missing if ast.get_docstring(tree) else ["the module itself", *missing]

    assert not offenders(undocumented)


def test_tests_mirror_modules() -> None:
    folders = [p for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()]
    strays = [
        str(test.relative_to(ROOT))
        for folder in folders
        for test in (ROOT / "tests" / folder.name).rglob("test_*.py")
        if not _mirrored(test).is_file()
    ]
    assert not strays, "name the module under test, or move the test to a folder of its own"


def _mirrored(test: Path) -> Path:
    inside = test.relative_to(ROOT / "tests")
    return PACKAGE / inside.with_name(inside.name.removeprefix("test_"))


@pytest.mark.parametrize("line", ["import time", "from time import sleep", "x = torch.load(f)"])
def test_the_rules_themselves_see_an_offence(line: str) -> None:
    assert banned_in(ast.parse(line), (*UNSAFE, *CLOCKS))
