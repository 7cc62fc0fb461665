"""How what commands print looks: tables without lines, numbers to the right, units in words."""

from rich import box
from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 100
"""Columns where there is no terminal to ask."""

_UNITS_S = ((86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def output(*, stderr: bool = False) -> Console:
    """Return the console of what a command is asked for, stdout; or the one for all else."""
    console = Console(highlight=False, stderr=stderr)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def compact_table(*columns: str) -> Table:
    """Return an empty table; a column whose name begins with "<" is set to the left."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for column in columns:
        left = column.startswith("<")
        table.add_column(column.lstrip("<"), justify="left" if left else "right", overflow="fold")
    return table


def duration(seconds: float) -> str:
    """Return ``seconds`` to two digits in the unit that suits it; at least 0.

    >>> duration(0.0351), duration(61), duration(7300)
    ('0.035 s', '1.0 min', '2.0 h')
    """
    value = max(0.0, seconds)
    for unit_s, name in _UNITS_S:
        if value >= unit_s:
            count = value / unit_s
            return f"{count:.0f} {name}" if count >= 10 or unit_s == 1.0 else f"{count:.1f} {name}"
    return f"{value:.2g} s"


def size(number_bytes: float) -> str:
    """Return a number of bytes short.

    >>> size(123_456_789)
    '123 MB'
    """
    short = count(number_bytes)
    return f"{short} B" if short[-1].isdigit() else f"{short[:-1]} {short[-1]}B"


def count(number: float) -> str:
    """Return ``number`` short.

    >>> count(950), count(12_345), count(3_400_000)
    ('950', '12.3k', '3.4M')
    """
    for factor, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= factor:
            return f"{number / (1e3 if name == 'k' else factor):.3g}{name}"
    return f"{number:.0f}"
