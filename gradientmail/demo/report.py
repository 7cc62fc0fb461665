"""The summary as people read it."""

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gradientmail.demo.palette import ALONE, TOGETHER, learner_colours
from gradientmail.demo.summary import LearnerTotals, Lost, Summary

HOW_COUNTED = (
    "every step: what float32 gradients would move, 2 ways x 4 bytes x {parameters:,} numbers x "
    "steps. Up, down and requests are what each learner itself counted."
)


def report(summary: Summary) -> RenderableType:
    """Return the summary as tables."""
    return Panel(
        Group(
            _losses(summary),
            "",
            _learners(summary),
            Text(HOW_COUNTED.format(parameters=summary.parameters), style="dim"),
            "",
            *map(Text, _sentences(summary)),
        ),
        title=f"{summary.run}: {summary.trained_s:.0f} s, {summary.rounds} rounds",
        box=box.ROUNDED,
        expand=False,
    )


def verdict(summary: Summary) -> str:
    """Return in one sentence who learned more."""
    fastest = summary.learners[0].name
    gain = summary.loss.alone - summary.loss.together
    if gain > 0:
        return f"{gain:.3f} nats per byte ahead of {fastest} alone"
    return f"{-gain:.3f} nats per byte behind {fastest} alone"


def _losses(summary: Summary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("held-out loss, nats per byte")
    table.add_column(f"after {summary.trained_s:.0f} s", justify="right")
    table.add_column("")
    fastest = summary.learners[0].name
    loss = summary.loss
    table.add_row(
        Text("the run", style=f"bold {TOGETHER}"), f"{loss.together:.4f}", verdict(summary)
    )
    table.add_row(
        Text(f"{fastest} alone", style=f"bold {ALONE}"),
        f"{loss.alone:.4f}",
        f"{summary.alone_steps} steps; both began at {loss.start:.4f}",
    )
    return table


def _learners(summary: Summary) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", show_edge=False)
    titles = (
        "learner",
        "speed",
        "steps",
        "rounds",
        "up",
        "down",
        "requests",
        "every step",
        "less",
    )
    for title in titles:
        table.add_column(title, justify="left" if title == "learner" else "right")
    colours = learner_colours(one.name for one in summary.learners)
    slowest = min(one.share for one in summary.learners)
    for one in summary.learners:
        name = Text(one.name, style=f"bold {colours[one.name]}")
        table.add_row(name, f"{one.share / slowest:.1f}", *_cells(one, summary.rounds))
    return table


def _cells(one: LearnerTotals, rounds: int) -> Iterator[str]:
    yield f"{one.steps:,}"
    yield f"{one.rounds} of {rounds}"
    yield decimal(one.up_bytes)
    yield decimal(one.down_bytes)
    yield f"{one.requests:,}"
    yield decimal(one.every_step_bytes)
    yield f"{one.times_less:.0f} x"


def _sentences(summary: Summary) -> Iterator[str]:
    yield from map(_lost, summary.lost)
    if summary.empty:
        yield f"rounds without a contribution: {summary.empty}"


def _lost(one: Lost) -> str:
    killed = f"{one.name} was killed after {one.at_s:.0f} s"
    if one.lost_s is None:
        return f"{killed} and had no effect again before the end"
    what = "commit" if one.name == "closer" else "contribution of its new process in a commit"
    return f"{killed}: {one.lost_s:.1f} s until the next {what}"
