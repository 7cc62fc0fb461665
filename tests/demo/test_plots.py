from pathlib import Path

import matplotlib.image
import pytest

from gradientmail.demo.plots import DPI, WIDTH_IN, plot_loss, plot_rounds
from gradientmail.demo.story import CLOSER, Kill
from tests.demo.stories import BEGAN, a_story

PLOTS = {"loss": (plot_loss, 5.0), "rounds": (plot_rounds, 3.8)}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_a_picture_of_its_size_with_something_on_it(name: str, tmp_path: Path) -> None:
    plot, height_in = PLOTS[name]
    path = tmp_path / f"{name}.png"
    plot(a_story(), path)
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[:2] == (height_in * DPI, WIDTH_IN * DPI)
    assert pixels[..., :3].min() < 0.3
    assert pixels[..., :3].mean() > 0.8


@pytest.mark.parametrize("name", PLOTS)
def test_a_process_that_stayed_away_is_drawn_to_the_end(name: str, tmp_path: Path) -> None:
    story = a_story()
    story.kills.append(Kill(CLOSER, BEGAN + 30))
    PLOTS[name][0](story, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_a_run_that_learned_nothing_can_be_drawn(tmp_path: Path) -> None:
    story = a_story()
    story.together = story.alone = story.alone[:1]
    plot_loss(story, tmp_path / "loss.png")
    assert (tmp_path / "loss.png").stat().st_size > 0
