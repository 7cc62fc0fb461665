"""What was measured, kept as JSON and shown as tables: on a terminal and in docs/."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.frame import ROOT, Figure, Result, Size, Skipped
from benchmarks.machine import Machine

RESULTS = ROOT / "build" / "bench"
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "comparison.md")
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


def write_pages() -> list[str]:
    """Fill the marked parts of the pages from the runs kept; return what is missing."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    names = {match["name"] for text in texts.values() for match in MARKED.finditer(text)}
    runs = {name: found for name in sorted(names) if (found := kept(name))}
    special = {"machine": _machines, "peers": _beside_peers}

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name in special and runs:
            return _marked(name, special[name](list(runs.values())))
        return _marked(name, _section(runs[name])) if name in runs else match[0]

    for page, text in texts.items():
        page.write_text(MARKED.sub(fill, text), encoding="utf-8")
    return sorted(names - runs.keys() - special.keys())


def _marked(name: str, body: str) -> str:
    return f"<!-- bench: {name} -->\n{body}\n<!-- end -->"


def _section(found: Measured) -> str:
    header, lines = rows_of(found.results)
    peer = " --peer" if found.peer else ""
    about = (
        f"`scripts/bench {found.name}{peer}` at {found.commit} on {found.at}, "
        f"{found.took_s:.0f} s: {summary(found)}."
    )
    return f"{about}\n\n{_table(header, lines)}"


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in (header, *lines)]
    escaped.insert(1, ["---"] * len(header))
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def _beside_peers(runs: Sequence[Measured]) -> str:
    """Show what was measured of us and of a peer under one name."""
    lines, peers = [], []
    for run in runs:
        figures = [one for one in run.results if isinstance(one, Figure)]
        for ours in (one for one in figures if one.of == "ours"):
            theirs = {
                one.of: one
                for one in figures
                if one.what == ours.what and not one.of.startswith("ours")  # as without numba
            }
            peers += [name for name in theirs if name not in peers]
            if theirs:
                lines.append((run.name, ours, theirs))
    if not lines:
        return "No peer was measured yet."
    return _table(
        ["benchmark", "what", "gradientmail", *peers],
        [
            [
                name,
                ours.what,
                f"{number(ours.value)} {ours.unit}",
                *(_shown(theirs.get(peer)) for peer in peers),
            ]
            for name, ours, theirs in lines
        ],
    )


def _shown(figure: Figure | None) -> str:
    return "" if figure is None else f"{number(figure.value)} {figure.unit}"


def _machines(runs: Sequence[Measured]) -> str:
    """Say on what the runs kept were measured; usually on one machine."""
    machines: list[Machine] = []
    for run in runs:
        if run.machine not in machines:
            machines.append(run.machine)
    return "\n".join(map(_machine, machines))


def _machine(machine: Machine) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    return (
        f"- {machine.cores} cores ({machine.cpu}), {machine.memory_gib:g} GiB, {machine.system}, "
        f"Python {machine.python}; {packages}"
    )
