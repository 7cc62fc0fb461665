"""docs/results.md and its plot, from the cells of ``benchmarks.train``."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.frame import ROOT, Figure
from benchmarks.training import Task, parameters_of
from gradientmail.programs.gpt import GPT

PAGE = ROOT / "docs" / "results.md"
PLOT = ROOT / "docs" / "results.svg"
BEGIN, END = "<!-- train: begin -->", "<!-- train: end -->"


class Row(Protocol):
    """What the page needs of a cell."""

    seed: int
    loss: float
    up_bits: float
    down_bits: float
    tokens: int
    cpu_s: float


Found = Mapping[str, Sequence[Row]]


def write(task: Task, titles: Mapping[str, str], found: Found, bars: Sequence[Figure]) -> None:
    """Write the plot, and what stands between the marks of the page; the words around stay."""
    plot(titles, found, PLOT)
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else f"# Results\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n".join([_task(task), "", *_table(titles, found), "", *_bars(bars)])
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def _task(task: Task) -> str:
    shape = task.shape
    numbers = parameters_of(GPT(shape))
    tokens = task.learners * task.batch * shape.context
    return (
        f"A byte-level GPT of {numbers:,} parameters ({shape.layers} blocks of width "
        f"{shape.width}, context {shape.context}) on the source of the standard library; "
        f"{task.learners} learners, {task.batch} windows a step each, "
        f"{task.common_steps} steps in common and {task.steps} after them: "
        f"{task.steps * tokens:,} bytes in each row but one. AdamW, rate {task.rate:g}, "
        "a cosine to a tenth."
    )


def _table(titles: Mapping[str, str], found: Found) -> list[str]:
    """Return the table, the best first."""
    lines = [
        "| | held-out loss | spread | against all-reduce | bits up | bits down | seeds | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, above in _ranked(found):
        rows = found[name]
        losses = [row.loss for row in rows]
        lines.append(
            f"| {titles[name]} | {statistics.mean(losses):.4f} "
            f"| {min(losses):.4f} .. {max(losses):.4f} "
            f"| {f'{statistics.mean(above):+.2f} %' if above else ''} "
            f"| {_mean(rows, 'up_bits'):.4g} | {_mean(rows, 'down_bits'):.4g} "
            f"| {len(rows)} | {_mean(rows, 'cpu_s'):.0f} |"
        )
    return lines


def _ranked(found: Found) -> list[tuple[str, list[float]]]:
    """Return names and percents above all-reduce, seed by seed; the best first."""
    baseline = {row.seed: row.loss for row in found.get("all-reduce", ())}
    above = {
        name: [100 * (row.loss / baseline[row.seed] - 1) for row in rows if row.seed in baseline]
        for name, rows in found.items()
    }
    return sorted(above.items(), key=lambda item: statistics.mean(item[1] or [0.0]))


def _bars(bars: Sequence[Figure]) -> list[str]:
    lines = [
        "| what must hold | found | spread | must be | met |",
        "| --- | --- | --- | --- | --- |",
    ]
    for bar in bars:
        spread = "" if bar.low is None else f"{bar.low:+.2f} .. {bar.high:+.2f}"
        found = f"{bar.value:+.3f} %" if bar.unit == "%" else f"{bar.value:,.0f} {bar.unit}"
        met = "yes" if bar.met else "**no**"
        lines.append(f"| {bar.what} | {found} | {spread} | {bar.target} | {met} |")
    return lines


def _mean(rows: Sequence[Row], field: str) -> float:
    return statistics.mean(getattr(row, field) for row in rows)


def plot(titles: Mapping[str, str], found: Found, path: Path) -> None:
    """Draw how far each row is above all-reduce, and the bits that its learners exchanged."""
    import matplotlib as mpl  # noqa: PLC0415 - takes a second, and only the page needs it

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "gradientmail"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    ranked = _ranked(found)[::-1]
    figure, both = plt.subplots(
        ncols=2,
        sharey=True,
        width_ratios=[2.0, 1.0],
        figsize=(9.0, 1.2 + 0.24 * len(ranked)),
        layout="constrained",
    )
    losses, bits = both
    losses.axvline(0.0, color="#d55e00", linewidth=0.8)
    for place, (name, above) in enumerate(ranked):
        losses.plot(above, [place] * len(above), ".", color="#56b4e9")
        losses.plot([statistics.mean(above or [0.0])], [place], "o", color="#0072b2")
        exchanged = _mean(found[name], "up_bits") + _mean(found[name], "down_bits")
        bits.barh(place, exchanged, color="#999999")
    losses.set_yticks(range(len(ranked)), [titles[name] for name, _ in ranked], fontsize=7)
    losses.set_xlabel("% above the loss of all-reduce, each seed and the mean")
    bits.set_xscale("log")
    bits.set_xlabel("bits a parameter")
    for axes in both:
        axes.grid(axis="y", linewidth=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
