"""The comparison: the fastest learner alone, for as long as the run trained."""

import sys
from pathlib import Path

import msgspec

from gradientmail.demo.stage import Stage
from gradientmail.demo.story import Alone, Point
from gradientmail.learner.program import data_seed

END_LIMIT_S = 30.0
NAME = "alone"


async def train_alone(stage: Stage, *, seed: int) -> None:
    """Train the run's program in a process of its own, from the run's seed; fill the story.

    Raises:
        DemoError: the process failed.
    """
    story = stage.story
    directory = stage.out / NAME
    directory.mkdir()
    lines = await stage.children.start(
        NAME,
        *(sys.executable, "-m", "gradientmail.demo.alone"),
        *(stage.scale.program, str(seed), str(data_seed(seed, story.fastest))),
        *(str(story.trained_s), str(stage.scale.evaluate_every_s), str(directory)),
    )
    async for line in lines:
        story.progress_alone = said = msgspec.json.decode(line, type=Alone)
        if said.params is not None:
            story.alone.append(Point(said.at_s, await stage.held_out.loss(Path(said.params))))
        stage.show(said.at_s)
    await stage.children.finish(NAME, limit_s=END_LIMIT_S)
