"""The documents say what the code does: links resolve, examples run, tables are up to date."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from gradientmail.algorithm import algorithm_of
from gradientmail.cli.settings import node_settings, run_settings
from gradientmail.learner.program import Positioned, load_program

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
}
LOG = "docs/log.md"  # kept by hand, day by day: what it names may be gone

LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]*)(#[^)]*)?\)")
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
DOTTED = re.compile(r"`(gradientmail(?:\.\w+)+)(?::\w+)?`")
PATH = re.compile(r"`((?:gradientmail|tests|scripts|docs)/[\w./-]+)`")


def blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page, without the indentation of a list they stand in."""
    found = (match for match in FENCE.finditer(PAGES[page]) if match[2] == language)
    return [re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE) for match in found]


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    lost = []
    for target, anchor in LINK.findall(FENCE.sub("", PAGES[page])):
        path = (ROOT / page).parent / target if target else ROOT / page
        if not path.exists():
            lost.append(target)
        elif anchor and anchor[1:] not in anchors(path.read_text(encoding="utf-8")):
            lost.append(target + anchor)
    assert not lost


def test_every_document_is_reachable_from_the_readme() -> None:
    seen, waiting = set(), ["README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page not in PAGES:
            continue
        seen.add(page)
        for target, _ in LINK.findall(PAGES[page]):
            waiting.append(os.path.relpath((ROOT / page).parent / target, ROOT))
    assert PAGES.keys() - seen <= {LOG}


@pytest.mark.parametrize("page", sorted(PAGES.keys() - {LOG}))
def test_what_documents_name_exists(page: str) -> None:
    missing = {name for name in DOTTED.findall(PAGES[page]) if not is_defined(name)}
    missing |= {path for path in PATH.findall(PAGES[page]) if not (ROOT / path).exists()}
    assert not missing


def is_defined(name: str) -> bool:
    """Whether ``name`` is a module, or what a module and its classes define."""
    parts = name.split(".")
    while parts:
        module = ROOT.joinpath(*parts)
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if path.exists():
                rest = name.split(".")[len(parts) :]
                return not rest or rest[0] in names_in(path)
        parts.pop()
    return False


def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        str(getattr(node, "name", None) or getattr(node, "id", None)) for node in ast.walk(tree)
    }


# -- generated parts ------------------------------------------------------------------------


def reference() -> ModuleType:
    """Return ``scripts/reference.py``, which fills the generated parts."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_are_up_to_date() -> None:
    filled = reference().filled
    assert [page for page, text in PAGES.items() if filled(text) != text] == [], "run scripts/docs"


def test_every_generated_table_is_shown_somewhere() -> None:
    module = reference()
    shown = {match["name"] for text in PAGES.values() for match in module.MARKED.finditer(text)}
    assert module.PARTS.keys() == shown


def test_the_layers_are_those_that_import_linter_holds() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        c for c in pyproject["tool"]["importlinter"]["contracts"] if c["type"] == "layers"
    )
    page = PAGES["docs/decisions/0011-layers.md"]
    assert re.findall(r"^    (\S.*)$", page, re.MULTILINE) == contract["layers"]


def test_every_error_in_the_documents_is_one_that_the_code_raises() -> None:
    texts = [
        node.value
        for path in ROOT.glob("gradientmail/**/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    messages = re.findall(r"^\| `([^`]+)` \| ", PAGES["docs/errors.md"], re.MULTILINE)
    assert len(messages) > 50
    assert not [message for message in messages if not any(message in text for text in texts)]


# -- examples -------------------------------------------------------------------------------


def examples() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        yield from ((page, code) for code in blocks(page, "python"))


def test_every_python_example_compiles() -> None:
    for page, code in examples():
        compile(code, page, "exec")


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/settings.md"])
def test_every_toml_example_is_a_run_toml(page: str, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    for code in blocks(page, "toml"):
        config.write_text(code, encoding="utf-8")
        algorithm_of(run_settings(config, (), {}))
        node_settings(config, {}, {})


def test_the_program_of_the_tutorial_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tutorial_program.py").write_text(
        blocks("docs/tutorial.md", "python")[0], encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name, device = "tutorial_program:program", torch.device("cpu")
    program = load_program(name, device=device, seed=0, data_seed=1)
    batch = next(iter(program.batches))
    assert program.tokens(batch) == 64
    assert torch.isfinite(program.loss(program.model, batch))
    assert isinstance(program.batches, Positioned)


def test_the_own_loop_of_the_readme_trains(tmp_path: Path) -> None:
    (code,) = blocks("README.md", "python")
    small = code.replace("stop_after_rounds=12", "stop_after_rounds=4, poll_s=0.05")
    assert small != code
    printed = run(small, tmp_path)
    assert re.search(r"loss \d+\.\d+ after \d+ steps", printed)


def test_the_schedule_of_the_tutorial_is_where_the_run_is(tmp_path: Path) -> None:
    """For who joins late, and for who comes back after the others went on."""
    program, *_, own_loop, scheduled, created = blocks("docs/tutorial.md", "python")
    (tmp_path / "mine.py").write_text(program, encoding="utf-8")
    small = created.replace("sync_every=100", "sync_every=5, poll_s=0.05")
    small = small.replace("stop_after_rounds=10", "stop_after_rounds=1000")
    beside = small.replace("gm.Closer(", "threading.Thread(target=gm.Closer(")
    beside = beside.replace(".run(until_done=True)", ".run, daemon=True).start()")

    def until(done: str, loop: str) -> str:
        return loop.replace("learner.done", done)

    shown = "print(at, learner.progress.steps, group['lr'] / rate(at))"
    code = [
        "import threading",
        beside,
        until("min(learner.progress.versions) > 1", own_loop),
        until("learner.progress.steps == 3", scheduled),
        shown,
        until("min(learner.progress.versions) > 7", own_loop),
        until("at >= 8 * every", scheduled),
        shown,
    ]
    late, back = run("\n".join(code), tmp_path).splitlines()
    at, steps, factor = map(float, late.split())
    assert (at >= 10, steps, factor) == (True, 3, 1.0)
    at, steps, factor = map(float, back.split())
    assert (at >= 40, steps < 30, factor) == (True, True, 1.0)


def run(code: str, directory: Path) -> str:
    """Return what ``code`` prints, run as a program in ``directory``."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
