"""The demo from set-up to summary; see ``run_demo``."""

import asyncio
import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from gradientmail.clock import SystemClock, system_random
from gradientmail.demo.children import Children, gradientmail
from gradientmail.demo.comparing import train_alone
from gradientmail.demo.held_out import HeldOut
from gradientmail.demo.plots import plot_loss, plot_rounds
from gradientmail.demo.report import report
from gradientmail.demo.scale import Scale
from gradientmail.demo.screen import output, screen_for
from gradientmail.demo.stage import Stage
from gradientmail.demo.story import Point, Story
from gradientmail.demo.summary import summarized
from gradientmail.demo.together import Together
from gradientmail.errors import SettingsError
from gradientmail.learner.parameters import exchanged
from gradientmail.programs.gpt import sample
from gradientmail.run import Run, numel_of, open_run
from gradientmail.store.url import open_store
from gradientmail.testing.servers import seaweedfs

MARK = ".gradientmail-demo"
"""Stands in a directory that a demo made, and the next one may clear."""

STORES = ("local", "s3")
PROMPT = "def "


def run_demo(store: str, out: Path, *, scale: Scale | None = None) -> None:
    """Train a model with unequal learners, killing parts of it; leave everything in ``out``.

    ``loss.png``, ``rounds.png``, ``model.safetensors``, ``summary.json``, ``run.toml``, ``logs/``,
    and for the local store the run itself in ``run/``.

    Args:
        store: "local", or "s3" for a server that is started for it.
        out: Made; what an earlier demo left there is replaced.
        scale: How large it is; the one that people see if not given.

    Raises:
        SettingsError: there is no such store, or ``out`` holds what no demo wrote.
        DemoError: a part failed; the message ends with its last words.
    """
    if store not in STORES:
        raise SettingsError(f"--store {store}: write one of {', '.join(STORES)}")
    _clear(out)
    console = output()
    try:
        with _place(store, out) as url:
            asyncio.run(_interruptible(url, out, scale or Scale(), console))
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        console.print(f"stopped; every process has ended, and their logs are in {out / 'logs'}")
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM
        raise SystemExit(128 + number) from None


def _clear(out: Path) -> None:
    """Make ``out``, empty but for the mark."""
    if out.is_dir() and any(out.iterdir()):
        if not (out / MARK).is_file():
            raise SettingsError(f"{out} is not empty, and no demo's: name another by --out")
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


@contextlib.contextmanager
def _place(store: str, out: Path) -> Iterator[str]:
    """Yield the URL of a run to be, for as long as its store is up."""
    if store == "local":
        yield str(out / "run")
        return
    with seaweedfs(out / "seaweedfs") as server, server.exported():
        yield f"s3://{server.bucket}/run"


async def _interruptible(url: str, out: Path, scale: Scale, console: Console) -> None:
    """Play the demo; SIGTERM ends it like Ctrl-C, with every process."""
    playing = asyncio.ensure_future(_play(url, out, scale, console))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, playing.cancel)
    await playing


async def _play(url: str, out: Path, scale: Scale, console: Console) -> None:
    clock = SystemClock()
    variables = {
        "OMP_NUM_THREADS": "1",
        "GRADIENTMAIL_LOG_FORMAT": "json",
        "GRADIENTMAIL_SAVE_EVERY_S": str(scale.save_every_s),
    }
    async with Children(out / "logs", variables) as children:
        console.print(await _created(url, out, scale, children), end="")
        store = open_store(url, clock=clock, rng=system_random())
        try:
            run = await open_run(store)
            with screen_for(console) as screen:
                stage = Stage(
                    url=url,
                    out=out,
                    scale=scale,
                    story=Story(shares=scale.shares, seconds=scale.seconds),
                    children=children,
                    held_out=HeldOut(scale.program, seed=run.manifest.settings.seed),
                    screen=screen,
                    clock=clock,
                )
                await Together(stage, run).train()
                model = await _exported_model(stage)
                await train_alone(stage, seed=run.manifest.settings.seed)
        finally:
            await store.close()
    await asyncio.to_thread(_conclude, stage, run, model, console)


async def _created(url: str, out: Path, scale: Scale, children: Children) -> str:
    """Create the run as a person would; return what that printed."""
    config = out / "run.toml"
    scale.write_config(config)
    options = ("--program", scale.program, "--config", str(config))
    return await children.output("init", *gradientmail("init", url, *options))


async def _exported_model(stage: Stage) -> Path:
    """Export the model; its held-out loss is the run's last."""
    path = stage.out / "model.safetensors"
    await stage.children.output("export", *gradientmail("export", stage.url, str(path)))
    story = stage.story
    story.together.append(Point(story.trained_s, await stage.held_out.loss(path)))
    return path


def _conclude(stage: Stage, run: Run, model: Path, console: Console) -> None:
    """Write plots and summary; print it, and text from the exported model."""
    out, story, scale = stage.out, stage.story, stage.scale
    parameters = sum(map(numel_of, exchanged(run.manifest.tensors)))
    summary = summarized(story, run=run.name, parameters=parameters)
    (out / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
    plot_loss(story, out / "loss.png")
    plot_rounds(story, out / "rounds.png")
    generator = torch.Generator().manual_seed(run.manifest.settings.seed)
    written = sample(stage.held_out.loaded(model), PROMPT, scale.sampled, generator)
    console.print(report(summary))
    console.print(
        Panel(Text(PROMPT + written), title="written by the exported model", expand=False)
    )
    for name in ("loss.png", "rounds.png", "model.safetensors", "summary.json", "logs"):
        console.print(str(out / name), soft_wrap=True)
