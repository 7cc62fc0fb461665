"""The demo on the terminal: a live picture; where there is none, a line for each event."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gradientmail.demo.palette import ALONE, TOGETHER, learner_colours
from gradientmail.demo.story import CLOSER, Point, Story, commit_shares
from gradientmail.records.commit import RoundRecord

PIPED_WIDTH = 100
ROUNDS_SHOWN = 36
EVENTS_SHOWN = 6
PROGRESS_EVERY_S = 10.0

States = Callable[[str], str]
"""Returns what the process with this name is at: its id, "killed" or "ended"."""

STATE_STYLES = {"killed": "bold red", "ended": "dim"}


class Screen(Protocol):
    """Shows a story while it happens."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def show(self, story: Story, states: States, now_s: float) -> None:
        """Show the story as it is at second ``now_s``."""
        ...


def output() -> Console:
    """Return the console of stdout."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def screen_for(console: Console) -> Screen:
    """Return what suits the console."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


class LiveScreen:
    """Redraws one picture."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave the last picture standing."""
        self._live.stop()

    def show(self, story: Story, states: States, now_s: float) -> None:
        """See ``Screen.show``."""
        self._live.update(picture(story, states, now_s), refresh=True)


class PlainScreen:
    """Prints what is new."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._commits, self._events, self._together, self._alone = 0, 0, 0, 0
        self._progress_at_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing is left open."""

    def show(self, story: Story, states: States, now_s: float) -> None:  # noqa: ARG002 - Screen's
        """See ``Screen.show``."""
        for line in self._news(story, now_s):
            self._console.print(Text(line), soft_wrap=True)

    def _news(self, story: Story, now_s: float) -> Iterator[str]:
        for at_s, text in story.events[self._events :]:
            yield f"{at_s:6.1f} s  {text}"
        for commit in story.commits[self._commits :]:
            yield f"{story.at_s(commit.closed_at):6.1f} s  {_closed(commit)}"
        for who, points, known in (
            ("the run", story.together, self._together),
            (f"{story.fastest} alone", story.alone, self._alone),
        ):
            for point in points[known:]:
                yield f"{point.at_s:6.1f} s  held-out loss of {who}: {point.loss:.4f}"
        if now_s - self._progress_at_s >= PROGRESS_EVERY_S:
            self._progress_at_s = now_s
            yield f"{now_s:6.1f} s  {_progress(story)}"
        self._progress_at_s = min(self._progress_at_s, now_s)
        self._events, self._commits = len(story.events), len(story.commits)
        self._together, self._alone = len(story.together), len(story.alone)


def _closed(commit: RoundRecord) -> str:
    share = commit_shares(commit)
    names = ", ".join(f"{name} {part:.0%}" for name, part in share.items()) or "nobody"
    return f"fragment {commit.fragment} at version {commit.version}, by {names}"


def _progress(story: Story) -> str:
    if story.progress_alone.steps:
        return f"{story.fastest} alone: {story.progress_alone.steps} steps"
    said = [(name, story.presence(name)) for name in story.shares]
    return ", ".join(
        f"{name}: {one.steps} steps, loss {_loss(one.loss)}" if one else f"{name}: joining"
        for name, one in said
    )


# -- the live picture ------------------------------------------------------------------------


def picture(story: Story, states: States, now_s: float) -> RenderableType:
    """Return everything at second ``now_s``, in at most 100 columns."""
    return Group(
        _heading(story, now_s),
        "",
        _learners(story, states),
        "",
        _rounds(story),
        "",
        _losses(story),
        "",
        *(Text(f"{at_s:6.1f} s  {text}") for at_s, text in story.events[-EVENTS_SHOWN:]),
    )


def _heading(story: Story, now_s: float) -> Text:
    if story.progress_alone.steps:
        alone = story.progress_alone
        return Text.assemble(
            (f"{story.fastest} alone", f"bold {ALONE}"),
            f"  {alone.at_s:.0f} s of {story.trained_s:.0f} s, {alone.steps} steps, "
            f"loss {_loss(alone.loss)}",
        )
    return Text.assemble(
        ("the run", f"bold {TOGETHER}"),
        f"  {now_s:.0f} s of {story.seconds:.0f} s, {len(story.commits)} rounds closed",
    )


def _learners(story: Story, states: States) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("", "process", "speed", "steps", "a step", "loss", "used", "up", "down"):
        table.add_column(column, justify="left" if column in ("", "process") else "right")
    for name, colour in learner_colours(story.shares).items():
        said = story.presence(name)
        cells = ("",) * 6
        if said is not None:
            cells = (
                f"{said.steps:,}",
                f"{said.step_s:.2f} s",
                _loss(said.loss),
                f"{said.applied}/{said.posted}",
                decimal(story.traffic(name).up_bytes),
                decimal(story.traffic(name).down_bytes),
            )
        table.add_row(
            Text(name, style=f"bold {colour}"),
            _process(states(name)),
            f"{story.shares[name] / min(story.shares.values()):.1f}",
            *cells,
        )
    terms = {commit.term for commit in story.commits}
    term = f"term {max(terms)}" if terms else ""
    table.add_row(Text(CLOSER, style="bold"), _process(states(CLOSER)), "", term)
    return table


def _process(state: str) -> Text:
    return Text(state, style=STATE_STYLES.get(state, "green"))


def _rounds(story: Story) -> Table:
    """Return the newest rounds as columns, filled in the rows of who contributed."""
    table = Table.grid(padding=(0, 1))
    newest = story.commits[-ROUNDS_SHOWN:]
    for name, colour in learner_colours(story.shares).items():
        row = Text()
        for commit in newest:
            took_part = any(one.learner == name for one in commit.participants)
            row.append("  " if took_part else " .", style=f"on {colour}" if took_part else "dim")
        table.add_row(Text(name, style=f"bold {colour}"), row)
    table.add_row(Text("fragment", style="dim"), Text("".join(f"{c.fragment:2}" for c in newest)))
    return table


def _losses(story: Story) -> Table:
    """Return held-out losses, the run's above those of the fastest alone."""
    table = Table.grid(padding=(0, 2))
    points = story.together if len(story.together) > len(story.alone) else story.alone
    table.add_row(Text("held-out", style="dim"), *(f"{point.at_s:.0f} s" for point in points))
    rows = (("the run", TOGETHER, story.together), (f"{story.fastest} alone", ALONE, story.alone))
    for name, colour, losses in rows:
        table.add_row(Text(name, style=f"bold {colour}"), *map(_point, losses))
    return table


def _point(point: Point) -> str:
    return f"{point.loss:.3f}"


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
