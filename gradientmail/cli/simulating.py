"""``gradientmail simulate``: what a run will take on a fleet, as tables, JSON or a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradientmail.cli.settings import assigned
from gradientmail.cli.tables import compact_table, count, duration, output, size
from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.forecast.fleet import Fleet
from gradientmail.forecast.reading import read_fleet, settings_side_by_side, tensors_of
from gradientmail.forecast.results import Forecast, LearnerForecast, grouped
from gradientmail.forecast.trace import Trace
from gradientmail.forecast.world import forecast, member_names

SHOWN_LEARNERS = 16
"""Rows of one panel of the picture."""

VERSIONS_SHOWN = 4
"""How many versions of a fragment the picture shows, where nobody says how many hours."""


def run_simulate(
    path: Path,
    *,
    presets: Sequence[str],
    changes: Mapping[str, Any],
    as_json: bool,
    plot: Path | None,
    plot_hours: float | None,
) -> None:
    """Forecast the fleet with each preset, and print what was found.

    Args:
        path: FLEET.toml.
        presets: Instead of those the file names, if any.
        changes: Of the file's own values; ``run`` is a list of key=value.
        as_json: Print JSON.
        plot: Where to draw a picture.
        plot_hours: How much of it to draw.
    """
    fleet = _with_flags(read_fleet(path), changes)
    side_by_side = settings_side_by_side(fleet, presets, source=str(path))
    console = output()
    found = []
    for name, settings in side_by_side.items():
        with console.status(f"forecasting {name} ..."):
            found.append(forecast(fleet, settings, name=name))
    if plot is not None:
        _plot(fleet, side_by_side, found, plot, plot_hours)
    if as_json:
        print(msgspec.json.encode(found).decode())  # noqa: T201 - asked for
    else:
        console.print(rendered(fleet, found))


def _with_flags(fleet: Fleet, changes: Mapping[str, Any]) -> Fleet:
    """Return ``fleet`` as the flags change it; one that is None was not given."""
    given = {name: value for name, value in changes.items() if value is not None}
    run = {**fleet.run, **assigned(given.pop("run", ()))}
    return msgspec.structs.replace(fleet, run=run, **given)


# -- tables ---------------------------------------------------------------------------------


def rendered(fleet: Fleet, found: Sequence[Forecast]) -> RenderableType:
    """Return what a person sees of the forecasts."""
    parts: list[RenderableType] = [_heading(fleet), "", _side_by_side(found)]
    for one in found:
        parts += ["", Text(one.name, style="bold"), _learners(fleet, one)]
    return Group(*parts)


def _heading(fleet: Fleet) -> RenderableType:
    learners = sum(group.count for group in fleet.learners)
    parameters = sum(tensor.numel for tensor in tensors_of(fleet.model))
    limits = [
        f"{fleet.hours:g} h" if fleet.hours is not None else "",
        f"{fleet.rounds} rounds" if fleet.rounds is not None else "",
    ]
    return Text(
        f"{learners} learner{'s' if learners != 1 else ''}, {count(parameters)} parameters; "
        f"{' or '.join(filter(None, limits))} from the start, seed {fleet.seed}"
    )


def _side_by_side(found: Sequence[Forecast]) -> Table:
    table = compact_table("<", *(one.name for one in found))
    for name, cell in _ROWS.items():
        cells = [cell(one) for one in found]
        if any(cells):
            table.add_row(name, *cells)
    return table


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else ""


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount else ""


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _stale(one: Forecast) -> str:
    late = sum(number for behind, number in one.staleness.items() if behind)
    return _share(late / max(1, sum(one.staleness.values())))


_ROWS: Mapping[str, Any] = {
    "time": lambda one: duration(one.hours * 3600.0),
    "rounds": lambda one: count(one.rounds),
    "from round to round": lambda one: _seconds(one.between_s),
    "from version to version": lambda one: _seconds(one.round_s),
    "contributions a round": lambda one: f"{one.contributions:.1f}",
    "steps": lambda one: count(one.steps),
    "utilisation": lambda one: _share(one.utilisation),
    "  posted too late": lambda one: _share(one.carried),
    "  wasted steps": lambda one: _share(one.wasted),
    "  waiting for commits": lambda one: _share(one.waited),
    "  joining": lambda one: _share(one.joining),
    "  interrupted": lambda one: _share(one.away),
    "steps behind, aligning": lambda one: f"{one.stale_steps:.1f}",
    "late contributions used": _stale,
    "up, a learner and hour": lambda one: size(one.up_bytes_per_learner_hour),
    "down, a learner and hour": lambda one: size(one.down_bytes_per_learner_hour),
    "requests, a learner and hour": lambda one: count(one.requests_per_learner_hour),
    "closer computes": lambda one: _share(one.closer.computing),
    "closer receives": lambda one: _share(one.closer.receiving),
    "closer sends": lambda one: _share(one.closer.sending),
    "nobody closes": lambda one: _share(one.closer.absent),
    "stored at the end": lambda one: size(one.stored_bytes),
    "stored at most": lambda one: size(one.stored_peak_bytes),
    "cost of learners": lambda one: _money(one.money.learners),
    "cost of closers": lambda one: _money(one.money.closers),
    "cost of requests, egress": lambda one: _money(one.money.requests_and_egress),
    "cost of storage": lambda one: _money(one.money.storage),
    "cost in all": lambda one: _money(one.money.total),
    "cost of 1000 useful steps": lambda one: _money(one.cost_per_1000_steps),
}


def _learners(fleet: Fleet, one: Forecast) -> Table:
    table = compact_table(
        "<learners",
        "a step",
        "useful",
        "late",
        "wasted",
        "waited",
        "away",
        "used",
        "up/h",
        "down/h",
        "req/h",
        "cost",
    )
    for members in grouped(one, fleet.learners):
        table.add_row(*_group(members))
    return table


def _group(members: Sequence[LearnerForecast]) -> list[str]:
    """Return one row of the mean of a group."""

    def mean(field: str) -> float:
        return float(sum(getattr(one, field) for one in members) / len(members))

    hours = sum(one.there_h for one in members) or 1.0
    name = members[0].group
    posted, used = (sum(getattr(one, field) for one in members) for field in ("posted", "used"))
    return [
        name if len(members) == 1 else f"{name}, {len(members)}",
        f"{mean('step_s'):.3g} s",
        *(_share(mean(field)) for field in ("utilisation", "carried", "wasted", "waited", "away")),
        f"{used / max(1, posted):.0%}",
        size(sum(one.traffic.up_bytes for one in members) / hours),
        size(sum(one.traffic.down_bytes for one in members) / hours),
        count(sum(one.traffic.requests for one in members) / hours),
        _money(sum(one.rent + one.store_cost for one in members)),
    ]


# -- the picture ----------------------------------------------------------------------------


def _plot(
    fleet: Fleet,
    side_by_side: Mapping[str, RunSettings],
    found: Sequence[Forecast],
    path: Path,
    hours: float | None,
) -> None:
    """Draw the beginning of each forecast: computed again, as far as it is shown."""
    try:
        from gradientmail.forecast.picture import Panel, draw  # noqa: PLC0415 - only if asked
    except ImportError as error:
        raise SettingsError(
            f"--plot needs matplotlib: pip install matplotlib ({error})"
        ) from error
    names = shown_names(fleet)
    panels = []
    for one in found:
        versions_h = VERSIONS_SHOWN * (one.round_s or 0.0) / 3600.0
        shown_h = min(one.hours, hours or versions_h or one.hours)
        trace = Trace(shown=frozenset(names), until_s=shown_h * 3600.0)
        short = msgspec.structs.replace(fleet, hours=shown_h)
        forecast(short, side_by_side[one.name], trace=trace)
        most = sum(group.count for group in fleet.learners)
        title = f"{one.name}: {one.utilisation:.0%} of the fleet's speed"
        panels.append(Panel(title, names, trace, most))
    draw(panels, path)


def shown_names(fleet: Fleet) -> list[str]:
    """Return whom the picture shows: of each group as many as there is room for."""
    room = max(1, SHOWN_LEARNERS // len(fleet.learners))
    return [name for group in fleet.learners for name in member_names(group)[:room]]
