"""The ``gradientmail`` command: what can be typed, and nothing that is done.

What a command does is imported when it runs, so that ``--help`` and ``status`` need no torch. A
flag is an argument, so a command has as many as it has flags.
"""
# ruff: noqa: PLC0415, PLR0913, PLR0917

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gradientmail import __version__
from gradientmail.cli.exits import EPILOG, exits
from gradientmail.cli.logs import configure_logging
from gradientmail.cli.options import (
    Config,
    LogFormat,
    LogLevel,
    Name,
    Program,
    RunUrl,
    StoreClient,
)
from gradientmail.cli.settings import node_settings, run_settings
from gradientmail.config import NodeSettings

app = typer.Typer(
    name="gradientmail",
    help="Train one model on scattered machines that share nothing but a bucket or a directory.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; the process exits with one of the codes of ``exits``."""
    app(prog_name="gradientmail")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - as typer calls it
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    configure_logging(NodeSettings())


def _node(config: Path | None = None, **flags: object) -> NodeSettings:
    """Return the settings of this process, and log as they say from here on."""
    node = node_settings(config, flags, _environment())
    configure_logging(node)
    return node


def _environment() -> Mapping[str, str]:
    return os.environ


@app.command()
@exits
def init(
    url: RunUrl,
    program: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Returns the model, optimizer, batches and loss to train.",
            show_default=False,
        ),
    ],
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="run.toml with the run's settings.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting of the run; repeatable."),
    ] = None,
    strategy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Strategy document (tagged JSON) to take settings from."
        ),
    ] = None,
    store_client: StoreClient = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Create a run at RUN_URL, after proving that its store can hold one.

    A setting comes from --set, GRADIENTMAIL_* variables, the file, the strategy document, the
    preset that `algorithm` names, or its default; the first of these that has it.
    """
    node = _node(config, store_client=store_client, log_format=log_format, log_level=log_level)
    settings = run_settings(config, assignments or (), _environment(), strategy)
    from gradientmail.cli.creating import run_init

    run_init(url, settings, node, program=program)


@app.command()
@exits
def learner(
    url: RunUrl,
    name: Name = None,
    state_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Its own directory, from which a restart goes on; none keeps nothing.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Torch device, such as cuda:0; cpu if not given.")
    ] = None,
    *,
    with_closer: Annotated[
        bool, typer.Option("--with-closer", help="Also run a closer, in a process of its own.")
    ] = False,
    throttle: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Slow down to this share of its speed, 0 to 1."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Compute threads; torch's choice if not given.")
    ] = None,
    program: Program = None,
    config: Config = None,
    store_client: StoreClient = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Train as a learner of the run, until it is done or a signal comes."""
    node = _node(
        config,
        name=name,
        state_dir=state_dir,
        device=device,
        throttle=throttle,
        threads=threads,
        store_client=store_client,
        log_format=log_format,
        log_level=log_level,
    )
    from gradientmail.cli.training import run_learner

    run_learner(url, node, program=program, with_closer=with_closer)


@app.command()
@exits
def closer(
    url: RunUrl,
    *,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when the run has ended.")
    ] = False,
    name: Name = None,
    spool_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY", help="Where payloads are worked on; temporary if not given."
        ),
    ] = None,
    config: Config = None,
    store_client: StoreClient = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Close rounds: any number of closers may run, one at a time does the work."""
    node = _node(
        config,
        name=name,
        spool_dir=spool_dir,
        store_client=store_client,
        log_format=log_format,
        log_level=log_level,
    )
    from gradientmail.cli.closing import run_closer

    run_closer(url, node, until_done=until_done)


@app.command()
@exits
def status(
    url: RunUrl,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a look.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every 2 s, until the run is done.")
    ] = False,
    config: Config = None,
    store_client: StoreClient = None,
    log_level: LogLevel = None,
) -> None:
    """Show what is committed, who contributes, and what is missing."""
    node = _node(config, store_client=store_client, log_level=log_level)
    from gradientmail.cli.showing import show_status

    show_status(url, node, as_json=as_json, watch=watch)


@app.command()
@exits
def stop(
    url: RunUrl,
    reason: Annotated[
        str, typer.Option(help="Why, for who reads the run later.", show_default=False)
    ] = "asked for on the command line",
    config: Config = None,
    store_client: StoreClient = None,
    log_level: LogLevel = None,
) -> None:
    """Ask the run to end after the rounds in flight. This cannot be taken back."""
    node = _node(config, store_client=store_client, log_level=log_level)
    from gradientmail.cli.stopping import run_stop

    run_stop(url, node, reason=reason)


@app.command()
@exits
def export(
    url: RunUrl,
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="File to write, replaced at once.", show_default=False),
    ],
    version: Annotated[
        int | None,
        typer.Option(metavar="N", help="This version of every fragment; the newest if not given."),
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Without a closer: what this learner posted; the mean of all if not given.",
        ),
    ] = None,
    program: Program = None,
    config: Config = None,
    store_client: StoreClient = None,
    log_level: LogLevel = None,
) -> None:
    """Write the model as safetensors, under the names its own state_dict has."""
    node = _node(config, store_client=store_client, log_level=log_level)
    from gradientmail.cli.exporting import run_export

    run_export(url, out, node, version=version, learner=learner, program=program)


@app.command()
@exits
def verify(
    url: RunUrl,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: Config = None,
    store_client: StoreClient = None,
    log_level: LogLevel = None,
) -> int:
    """Check every record and payload, and derive every version again from what is kept.

    The exit code is 6 when anything is wrong. A run created with --set retain=true keeps all.
    """
    node = _node(config, store_client=store_client, log_level=log_level)
    from gradientmail.cli.verifying import run_verify

    return run_verify(url, node, as_json=as_json)


@app.command()
@exits
def doctor(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="A run, or a place where runs are to live.", show_default=False
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    config: Config = None,
    store_client: StoreClient = None,
    log_level: LogLevel = None,
) -> int:
    """Find out what is wrong with a live run, or whether a store can hold one.

    A run is watched for half of presence_s or lease_s, and nothing is written: stuck rounds,
    silent learners, missing payloads, orphaned bytes, lifecycle rules, clocks. Where no run is,
    the store is tried out: races, visibility, clock, rights.
    """
    node = _node(config, store_client=store_client, log_level=log_level)
    from gradientmail.cli.probing import run_doctor

    return run_doctor(url, node, as_json=as_json)


@app.command()
@exits
def simulate(
    fleet: Annotated[
        Path,
        typer.Argument(metavar="FLEET.toml", help="The fleet and the run.", show_default=False),
    ],
    presets: Annotated[
        list[str] | None,
        typer.Option("--preset", metavar="NAME", help="Put this one beside others; repeatable."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting of the run; repeatable."),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0.0, metavar="H", help="How far to look ahead.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many rounds.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="Of interruptions.")] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON array, every learner in it.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw who did what, when.")
    ] = None,
    plot_hours: Annotated[
        float | None, typer.Option(min=0.0, metavar="H", help="How much of it to draw.")
    ] = None,
) -> None:
    """Forecast a run on a fleet, before it is rented: time, waste, bytes, requests and money.

    The protocol's own decisions on virtual time, with sizes in place of tensors.
    """
    from gradientmail.cli.simulating import run_simulate

    run_simulate(
        fleet,
        presets=presets or (),
        changes={"run": assignments, "hours": hours or None, "rounds": rounds, "seed": seed},
        as_json=as_json,
        plot=plot,
        plot_hours=plot_hours or None,
    )


@app.command()
@exits
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Where the plots and the model go.")
    ] = Path("demo-out"),
    store: Annotated[
        str, typer.Option(metavar="local|s3", help="A directory, or a real S3 server it starts.")
    ] = "local",
) -> None:
    """Train a small GPT with three unequal learners, killing parts of it on the way."""
    from gradientmail.demo.demo import run_demo

    run_demo(store, out)


if __name__ == "__main__":
    main()
