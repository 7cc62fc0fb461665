"""``gradientmail status``: a run at one glance, as tables that fit 100 columns, or as JSON."""

from collections.abc import AsyncIterator, Iterator

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradientmail.cli.stores import with_store
from gradientmail.cli.tables import compact_table, count, duration, output, size
from gradientmail.clock import SystemClock
from gradientmail.config import NodeSettings
from gradientmail.operations.status import FragmentStatus, LearnerStatus, RunStatus, run_status
from gradientmail.records.commit import Participant, RoundRecord
from gradientmail.store.base import Store

REJECTIONS_SHOWN = 5
WATCH_S = 2.0

STATE_STYLES = {"live": "green", "silent": "yellow", "left": "dim"}


def show_status(url: str, node: NodeSettings, *, as_json: bool, watch: bool) -> None:
    """Print the status once, or, watching, again and again until the run is done."""
    clock, console = SystemClock(), output()

    async def looks(store: Store) -> AsyncIterator[RunStatus]:
        yield (status := await run_status(store, clock=clock))
        while watch and status.state != "done":
            await clock.sleep(WATCH_S)
            yield (status := await run_status(store, clock=clock))

    async def print_json(store: Store) -> None:
        async for status in looks(store):
            print(msgspec.json.encode(status).decode(), flush=True)  # noqa: T201 - asked for

    async def print_tables(store: Store) -> None:
        async for status in looks(store):
            if watch and console.is_terminal:
                console.clear()
            console.print(rendered(status, clock.wall()))

    with_store(url, node, print_json if as_json else print_tables)


def rendered(status: RunStatus, now_s: float) -> RenderableType:
    """Return what a person sees of ``status`` at POSIX time ``now_s``."""
    parts: list[RenderableType] = [_heading(status), _fragments(status, now_s)]
    if status.learners:
        parts += ["", _learners(status.learners)]
    if newest := _newest(status):
        parts += ["", _contributions(newest)]
    parts += [Text(f"rejected: {line}", style="red") for line in _rejections(status)]
    parts += [Text(f"note: {notice}", style="yellow") for notice in status.notices]
    return Group(*parts)


def _heading(status: RunStatus) -> RenderableType:
    settings = status.settings
    last = "" if settings.stop_after_rounds is None else f" of {settings.stop_after_rounds}"
    why = "" if status.stop_reason is None else f" ({status.stop_reason})"
    return Group(
        Text.assemble(
            (status.run, "bold"), f"  {status.state}{why}, {status.rounds}{last} rounds closed"
        ),
        Text(
            f"{settings.algorithm}: each fragment every {settings.sync_every} steps; "
            f"{_exchange(status)}"
        ),
        "",
    )


def _exchange(status: RunStatus) -> str:
    """Return through whom learners exchange."""
    settings, closer = status.settings, status.closer
    if settings.exchange != "closer":
        over = f"topology: {settings.topology}" if settings.exchange == "gossip" else "no exchange"
        return f"no closer, {over}"
    if closer is None or closer.released:
        return "lease: nobody"
    return f"lease: {closer.name} (term {closer.term}, beat {closer.beats})"


def _fragments(status: RunStatus, now_s: float) -> Table:
    table = compact_table(
        "fragment", "version", "numbers", "closed ago", "cosine", "norm", "quorum", "sync", "<by"
    )
    for fragment in status.fragments:
        table.add_row(*_fragment(fragment, now_s))
    return table


def _fragment(fragment: FragmentStatus, now_s: float) -> Iterator[str]:
    yield str(fragment.fragment)
    yield str(fragment.version)
    yield count(fragment.elements)
    commit = fragment.commit
    if commit is None:
        return
    yield duration(now_s - commit.closed_at)
    yield "" if commit.cosine is None else f"{commit.cosine:.3f}"
    yield f"{commit.norm:.3g}"
    for seconds in (commit.estimates.quorum_s, commit.estimates.sync_s):
        yield "" if seconds is None else duration(seconds)
    yield _shares(commit)


def _shares(commit: RoundRecord) -> str:
    """Return who contributed, and what part of the whole each weighed."""
    total = sum(used.weight for used in commit.participants if not used.suppressed)
    if commit.missing:
        return f"nobody: {commit.missing}"
    if not total:
        return "nobody"
    shares: dict[str, float] = {}
    for used in commit.participants:
        share = 0.0 if used.suppressed else used.weight / total
        shares[used.learner] = shares.get(used.learner, 0.0) + share
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _learners(learners: tuple[LearnerStatus, ...]) -> Table:
    columns = ["<learner", "<state", "seen ago", "steps", "a step", "tokens", "loss", "used", "up"]
    mixing = any(learner.presence.divergence is not None for learner in learners)
    table = compact_table(*columns, "down", *(["apart"] if mixing else []))
    for learner in learners:
        said = learner.presence
        table.add_row(
            learner.name,
            Text(learner.state, style=STATE_STYLES[learner.state]),
            duration(learner.age_s),
            count(said.steps),
            duration(said.step_s),
            count(said.tokens),
            "" if said.loss is None else f"{said.loss:.4g}",
            f"{said.applied}/{said.posted}",
            size(said.bytes_up),
            size(said.bytes_down),
            *([] if said.divergence is None else [f"{said.divergence:.2g}"]),
        )
    return table


def _newest(status: RunStatus) -> dict[str, tuple[RoundRecord, Participant]]:
    """Return of each learner the newest commit that it is in, and what that says of it."""
    commits = [one.commit for one in status.fragments if one.commit is not None]
    by_age = sorted(commits, key=lambda commit: (commit.closed_at, commit.version))
    return {used.learner: (commit, used) for commit in by_age for used in commit.participants}


def _contributions(newest: dict[str, tuple[RoundRecord, Participant]]) -> Table:
    table = compact_table(
        "<newest contribution", "fragment", "version", "behind", "norm", "apart", "cosine", "<"
    )
    for name, (commit, used) in sorted(newest.items()):
        table.add_row(
            name,
            str(commit.fragment),
            str(commit.version),
            str(commit.version - 1 - used.base),
            f"{used.norm:.3g}",
            "" if used.divergence is None else f"{used.divergence:.2g}",
            "" if used.cosine is None else f"{used.cosine:.2f}",
            "suppressed" if used.suppressed else "" if used.clip == 1.0 else "clipped",
        )
    return table


def _rejections(status: RunStatus) -> list[str]:
    """Return why contributions of the newest rounds were not counted."""
    lines = [
        f"{rejection.reason} ({rejection.key})"
        for fragment in status.fragments
        if fragment.commit is not None
        for rejection in fragment.commit.rejected
    ]
    more = len(lines) - REJECTIONS_SHOWN
    return [*lines[:REJECTIONS_SHOWN], *([f"and {more} more"] if more > 0 else [])]
