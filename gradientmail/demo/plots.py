"""The two pictures the demo leaves: ``loss.png`` and ``rounds.png``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from gradientmail.demo.palette import ALONE, DARK, GREY, TOGETHER, VERMILION, learner_colours
from gradientmail.demo.story import CLOSER, Kill, Point, Story, commit_shares

mpl.use("Agg")

from matplotlib import pyplot as plt

WIDTH_IN, DPI = 9.0, 150
STYLE: Any = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlepad": 16,
    "axes.axisbelow": True,
    "xtick.color": DARK,
    "ytick.color": DARK,
}
ROW = 0.8
"""Height of a row's marks, of which a whole round fills all."""

Axes = Any
"""matplotlib has no types of its own."""


def plot_loss(story: Story, path: Path) -> None:
    """Draw held-out loss over time, of the run and of the fastest learner alone."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(WIDTH_IN, 5.0), layout="constrained")
        axes.grid(axis="y", color="#e5e5e5")
        ahead = story.together[-1].loss < story.alone[-1].loss
        _curve(axes, story.alone, ALONE, f"{story.fastest} alone", above=ahead)
        _curve(axes, story.together, TOGETHER, "the run", above=not ahead)
        axes.set_title("Held-out loss over the same time")
        axes.set_xlabel("seconds of training")
        axes.set_ylabel("nats per byte")
        axes.set_xlim(0, 1.2 * story.trained_s)
        axes.set_ylim(*_focus(story))
        for kill in story.kills:
            _mark_kill(axes, story, kill)
        figure.savefig(path, dpi=DPI)
        plt.close(figure)


def plot_rounds(story: Story, path: Path) -> None:
    """Draw who had a part in which round, when; the height of a mark is the learner's share."""
    names = (*story.shares, CLOSER)
    rows = {name: len(names) - 1 - at for at, name in enumerate(names)}
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(WIDTH_IN, 3.8), layout="constrained")
        for kill in story.kills:
            _mark_absence(axes, story, kill, rows[kill.name])
        _contributions(axes, story, rows)
        closed = [story.at_s(commit.closed_at) for commit in story.commits]
        _marks(axes, closed, rows[CLOSER], [0.4] * len(closed), DARK)
        axes.set_yticks(list(rows.values()), list(rows))
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(0, 1.02 * story.trained_s)
        axes.set_title(f"Who contributed to which of the {len(closed)} rounds")
        axes.set_xlabel("seconds of training; height: share in the round, shaded: killed")
        figure.savefig(path, dpi=DPI)
        plt.close(figure)


def _curve(axes: Axes, points: Sequence[Point], colour: str, label: str, *, above: bool) -> None:
    """Draw a line with its name and last value at its end, above the other's or below."""
    at_s, losses = [point.at_s for point in points], [point.loss for point in points]
    axes.plot(at_s, losses, color=colour, linewidth=2.2, marker="o", markersize=4.5)
    axes.annotate(
        f"{label} {losses[-1]:.3f}",
        (at_s[-1], losses[-1]),
        xytext=(8, 1 if above else -1),
        textcoords="offset points",
        color=colour,
        fontweight="bold",
        va="bottom" if above else "top",
    )


def _focus(story: Story) -> tuple[float, float]:
    """Return the losses to show: all but what both start from, which would flatten the rest."""
    losses = [point.loss for curve in (story.alone, story.together) for point in curve]
    least, start = min(losses), max(losses)
    later = [loss for loss in losses if loss < start - 0.02]
    most = max(later, default=start)
    room = max(0.1 * (most - least), 0.01)
    return least - room, most + room


def _mark_kill(axes: Axes, story: Story, kill: Kill) -> None:
    """Draw a line where a process was killed, and say for how long it was missed."""
    back_at = story.back_at(kill)
    lost = "the rest" if back_at is None else f"{back_at - kill.at:.1f} s"
    axes.axvline(story.at_s(kill.at), color=VERMILION, linestyle=":", linewidth=1.4, zorder=0)
    axes.annotate(
        f"kill -9 {kill.name}\nmissed for {lost}",
        (story.at_s(kill.at), 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(5, -2),
        textcoords="offset points",
        va="top",
        color=DARK,
        fontsize=9,
    )


def _mark_absence(axes: Axes, story: Story, kill: Kill, row: int) -> None:
    """Draw a bar from a kill until the process was back."""
    back_at = story.back_at(kill)
    end_s = story.trained_s if back_at is None else story.at_s(back_at)
    start_s = story.at_s(kill.at)
    axes.barh(row, end_s - start_s, left=start_s, height=ROW, color=VERMILION, alpha=0.35)


def _contributions(axes: Axes, story: Story, rows: Mapping[str, int]) -> None:
    shares = [(story.at_s(commit.closed_at), commit_shares(commit)) for commit in story.commits]
    for name, colour in learner_colours(story.shares).items():
        part = [(at_s, of[name]) for at_s, of in shares if name in of]
        _marks(axes, [at_s for at_s, _ in part], rows[name], [share for _, share in part], colour)


def _marks(
    axes: Axes, at_s: Sequence[float], row: int, heights: Sequence[float], colour: str
) -> None:
    """Draw a bar for each instant, up from the foot of the row."""
    foot = row - ROW / 2
    tops = [foot + ROW * height for height in heights]
    axes.vlines(at_s, foot, tops, color=colour, linewidth=2.4)
