"""``scripts/published``: published tables beside what we compute."""

import argparse
import sys
from collections.abc import Sequence

from gradientmail.forecast.published import (
    BITS,
    FITTED,
    HOURS,
    MISSED_BY,
    Entry,
    bandwidths,
    goodputs,
)


def main() -> int:
    """Print both tables and how far they are from the published ones."""
    parser = argparse.ArgumentParser(prog="scripts/published", description=__doc__)
    parser.add_argument("--bits", type=float, default=BITS, help="of a parameter on the line")
    parser.add_argument(
        "--missed-by", type=int, default=MISSED_BY, help="points from the first that is enough"
    )
    parser.add_argument("--hours", type=float, default=HOURS, help="of each goodput forecast")
    args = parser.parse_args()
    _say("Gbit/s for a share of compute (published, computed), arXiv 2501.18512 table 4")
    entries = list(bandwidths(args.bits, args.missed_by))
    _table(entries, "{:.1f}")
    same = sum(entry.off == 0 for entry in entries)
    near = sum(abs(entry.off) <= 1 for entry in entries)
    _say(f"{same} of {len(entries)} on the same point of the grid, {near} within one (21 %)\n")
    _say("goodput in % (published, computed), arXiv 2604.21428 table 1")
    entries = list(goodputs(args.hours))
    _table(entries, "{:.0f}")
    free = [
        abs(round(entry.computed) - entry.published)
        for entry in entries
        if (entry.row, entry.column) not in FITTED
    ]
    counts = [sum(off <= limit for off in free) for limit in (0, 1, 2)]
    _say(
        f"{len(free)} entries beside the {len(FITTED)} fitted ones: {counts[0]} equal, "
        f"{counts[1]} within 1 point, {counts[2]} within 2; the others by up to {max(free):.0f}"
    )
    return 0


def _table(entries: Sequence[Entry], form: str) -> None:
    columns = list(dict.fromkeys(entry.column for entry in entries))
    rows: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        rows.setdefault(entry.row, {})[entry.column] = entry
    _say(f"{'':36s}" + "".join(f"{column:>17s}" for column in columns))
    for row, cells in rows.items():
        shown = (f"{form}  {form}" for _ in columns)
        values = ((cells[column].published, cells[column].computed) for column in columns)
        pairs = (text.format(*pair) for text, pair in zip(shown, values, strict=True))
        _say(f"{row:36s}" + "".join(f"{pair:>17s}" for pair in pairs))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
