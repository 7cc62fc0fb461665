"""The picture of a forecast: who trains, waits, moves bytes or is gone, and when rounds close."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib as mpl

from gradientmail.forecast.trace import Doing, Trace

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.patches import Patch

WIDTH_IN: Final = 10.0
DPI: Final = 150
ROW_IN: Final = 0.3
HEAD_IN: Final = 0.95
"""Of a panel, beside its rows: title and axis."""

# Colours that colour-blind people can tell apart: Okabe and Ito (2008).
COLOURS: Final = {
    Doing.TRAINING: "#0072b2",
    Doing.WAITING: "#e69f00",
    Doing.AWAY: "#d55e00",
    Doing.JOINING: "#bbbbbb",
    Doing.UPLOADING: "#009e73",
    Doing.FETCHING: "#cc79a7",
}
DARK: Final = "#444444"
THICK: Final = (0.0, 0.46)
"""Where in its row a bar of time lies: from its middle up; below it what is on the line."""
THIN: Final = {Doing.UPLOADING: (-0.20, 0.16), Doing.FETCHING: (-0.40, 0.16)}

STYLE: Final[Any] = {
    "font.size": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "xtick.color": DARK,
    "ytick.color": DARK,
    "ytick.major.size": 0,
}
_UNITS: Final = ((3 * 86_400.0, 86_400.0, "days"), (3 * 3600.0, 3600.0, "hours"))
_MINUTES: Final = 300.0

Axes = Any
"""matplotlib has no types of its own."""


class Panel(NamedTuple):
    """One forecast's part of the picture.

    Attributes:
        title: Above it.
        names: Learners from top to bottom.
        trace: What they did, up to its ``until_s``.
        most: Contributions that a round may hold: the height of a full mark.
    """

    title: str
    names: Sequence[str]
    trace: Trace
    most: int


def draw(panels: Sequence[Panel], path: Path) -> None:
    """Write the picture, one panel under the other, each on a time axis of its own."""
    heights = [ROW_IN * (len(panel.names) + 1) + HEAD_IN for panel in panels]
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            len(panels),
            figsize=(WIDTH_IN, sum(heights) + 0.35),
            layout="constrained",
            squeeze=False,
            height_ratios=heights,
        )
        for axes, panel in zip(grid[:, 0], panels, strict=True):
            _draw_panel(axes, panel)
        figure.legend(
            handles=[Patch(color=colour, label=doing) for doing, colour in COLOURS.items()],
            loc="outside upper right",
            ncols=len(COLOURS),
            frameon=False,
            handlelength=1.2,
            columnspacing=1.4,
        )
        figure.savefig(path, dpi=DPI)
        plt.close(figure)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    unit_s, unit = _unit(panel.trace.until_s)
    rows = {name: len(panel.names) - at for at, name in enumerate(panel.names)}
    _bars(axes, panel, rows, unit_s)
    _rounds(axes, panel, unit_s)
    axes.set_yticks([*rows.values(), 0], [*rows, "rounds"])
    axes.set_ylim(-0.5, len(rows) + 0.6)
    axes.set_xlim(0.0, panel.trace.until_s / unit_s)
    axes.set_title(panel.title)
    axes.set_xlabel(unit)


def _bars(axes: Axes, panel: Panel, rows: dict[str, int], unit_s: float) -> None:
    spans: dict[tuple[str, Doing], list[tuple[float, float]]] = {}
    for span in panel.trace.spans:
        bars = spans.setdefault((span.learner, span.doing), [])
        bars.append((span.start_s / unit_s, (span.end_s - span.start_s) / unit_s))
    for (name, doing), bars in spans.items():
        low, height = THIN.get(doing, THICK)
        axes.broken_barh(bars, (rows[name] + low, height), color=COLOURS[doing], linewidth=0)


def _rounds(axes: Axes, panel: Panel, unit_s: float) -> None:
    """Draw a mark for each round, as high as its share of the learners."""
    closed = panel.trace.closed
    at = [one.at_s / unit_s for one in closed]
    tops = [-0.4 + 0.8 * min(1.0, one.contributions / max(1, panel.most)) for one in closed]
    axes.vlines(at, -0.4, tops, color=DARK, linewidth=1.4)
    if len(closed) <= 60:
        axes.vlines(at, 0.5, len(panel.names) + 0.5, color=DARK, linewidth=0.4, linestyle=":")


def _unit(until_s: float) -> tuple[float, str]:
    for least_s, unit_s, name in _UNITS:
        if until_s >= least_s:
            return unit_s, name
    return (60.0, "minutes") if until_s >= _MINUTES else (1.0, "seconds")
