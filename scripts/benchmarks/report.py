"""What was measured, kept as JSON and shown as tables: on a terminal and in docs/benchmarks.md."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.frame import ROOT, Figure, Result, Size, Skipped
from benchmarks.machine import Machine

RESULTS = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "benchmarks.md"
MARKED = re.compile(r"<!-- bench: (?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
COLUMNS = ("what", "of", "figure", "spread", "must be", "met", "wall s", "CPU s", "note")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one benchmark; ``code`` is the digest of what ran, ``commit`` is for people."""

    name: str
    size: Size
    peer: bool
    commit: str
    code: str
    at: str
    took_s: float
    machine: Machine
    results: tuple[Result, ...]


# -- files ----------------------------------------------------------------------------------


def kept_at(name: str, size: Size) -> Path:
    """Return the file that keeps the last run of a benchmark at that size."""
    return RESULTS / (f"{name}.json" if size == "full" else f"{name}.{size}.json")


def keep(measured: Measured) -> None:
    """Write a run down; a full one takes the place of the one before."""
    path = kept_at(measured.name, measured.size)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1))


def kept(name: str, size: Size = "full") -> Measured | None:
    """Return the last run of a benchmark; None when there is none, or of an older form."""
    try:
        return msgspec.json.decode(kept_at(name, size).read_bytes(), type=Measured)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


# -- cells ----------------------------------------------------------------------------------


def cells(result: Result) -> tuple[str, ...]:
    """Return one line of a table."""
    if isinstance(result, Skipped):
        return (result.what, "", "skipped", "", "", "", "", "", result.reason)
    spread = "" if result.low is None else f"{number(result.low)} .. {number(result.high)}"
    return (
        result.what,
        result.of,
        f"{number(result.value)} {result.unit}",
        spread,
        str(result.target or ""),
        {None: "", True: "yes", False: "NO"}[result.met],
        number(result.wall_s),
        number(result.cpu_s),
        result.note,
    )


def number(value: float | None) -> str:
    """Return three digits of a number, without an exponent."""
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value)}"
    return f"{value:#.3g}".rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"


def rows_of(results: Iterable[Result]) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return the header and lines of a table, without columns in which nothing stands."""
    lines = [cells(result) for result in results]
    used = [i for i in range(len(COLUMNS)) if any(line[i] for line in lines)]
    if all(line[1] in ("ours", "") for line in lines):
        used.remove(1) if 1 in used else None
    return [COLUMNS[i] for i in used], [tuple(line[i] for i in used) for line in lines]


def show(measured: Measured) -> None:
    """Print a run as a table."""
    header, lines = rows_of(measured.results)
    title = f"{measured.name}, {measured.size}, at {measured.commit}, {measured.took_s:.0f} s"
    table = Table(title=title, title_justify="left")
    for column in header:
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(*line)
    console = Console()
    console.width = max(console.width, 110)
    console.print(table)


def summary(measured: Measured) -> str:
    """Say in one line how many targets are met."""
    judged = [one for one in measured.results if isinstance(one, Figure) and one.target]
    met = sum(bool(one.met) for one in judged)
    skipped = sum(isinstance(one, Skipped) for one in measured.results)
    return f"{met} of {len(judged)} targets met" + (f", {skipped} skipped" if skipped else "")


# -- the page -------------------------------------------------------------------------------


def write_page() -> list[str]:
    """Fill the marked parts of docs/benchmarks.md from the runs kept; return what is missing."""
    missing: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name == "machine":
            return _marked(name, _machines(missing_ok=True))
        found = kept(name)
        if found is None:
            missing.append(name)
            return match[0]
        return _marked(name, _section(found))

    PAGE.write_text(MARKED.sub(fill, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return missing


def _marked(name: str, body: str) -> str:
    return f"<!-- bench: {name} -->\n{body}\n<!-- end -->"


def _section(found: Measured) -> str:
    header, lines = rows_of(found.results)
    peer = " --peer" if found.peer else ""
    about = (
        f"`scripts/bench {found.name}{peer}` at {found.commit} on {found.at}, "
        f"{found.took_s:.0f} s: {summary(found)}."
    )
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in (header, *lines)]
    escaped.insert(1, ["---"] * len(header))
    return "\n".join([about, "", *(f"| {' | '.join(line)} |" for line in escaped)])


def _machines(*, missing_ok: bool) -> str:
    """Say on what the runs kept were measured; usually on one machine."""
    names = [match["name"] for match in MARKED.finditer(PAGE.read_text(encoding="utf-8"))]
    runs = [found for name in names if (found := kept(name))]
    machines: list[Machine] = []
    for run in runs:
        if run.machine not in machines:
            machines.append(run.machine)
    if not machines and missing_ok:
        return "Nothing was measured yet."
    return "\n".join(map(_machine, machines))


def _machine(machine: Machine) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    return (
        f"- {machine.cores} cores ({machine.cpu}), {machine.memory_gib:g} GiB, {machine.system}, "
        f"Python {machine.python}; {packages}"
    )
