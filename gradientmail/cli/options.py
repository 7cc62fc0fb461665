"""The arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

_NODE = "This process"

RunUrl = Annotated[
    str,
    typer.Argument(
        metavar="RUN_URL",
        help="Where the run lives: a directory, file:///path or s3://bucket/prefix.",
        show_default=False,
    ),
]

Name = Annotated[
    str | None,
    typer.Option(
        help="Its name; none draws one, which the state directory keeps.", rich_help_panel=_NODE
    ),
]

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="run.toml, of which the \\[node] table is read.",
        rich_help_panel=_NODE,
    ),
]

LogFormat = Annotated[
    str | None,
    typer.Option(
        metavar="human|json",
        help="Log lines for people, or one JSON object a line; on stderr.",
        rich_help_panel=_NODE,
    ),
]

LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Least severe that is logged: debug, info, warning or error.",
        rich_help_panel=_NODE,
    ),
]

StoreClient = Annotated[
    str | None,
    typer.Option(
        metavar="obstore|s3fs",
        help="Client library for s3:// URLs.",
        rich_help_panel=_NODE,
    ),
]

Program = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="What to train; the run's own program if not given.",
        show_default=False,
    ),
]
