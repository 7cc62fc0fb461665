from pathlib import Path

import matplotlib.image

from gradientmail.forecast.picture import DPI, WIDTH_IN, Panel, draw
from gradientmail.forecast.trace import Trace
from tests.forecast.fleets import decoupled, diloco, fleet_with, look_ahead, one


def test_the_picture_shows_who_did_what(tmp_path: Path) -> None:
    fleet = fleet_with(
        one("fast"),
        one("slow", step_s=2.0, up_mbit_s=0.1, interruptions_per_day=2000, interruption_s=30.0),
        hours=0.1,
    )
    panels = []
    for name, settings in {"diloco": diloco(), "decoupled": decoupled()}.items():
        trace = Trace(shown=frozenset({"fast", "slow"}), until_s=300.0)
        look_ahead(fleet, settings, trace)
        panels.append(Panel(name, ["fast", "slow"], trace, 2))
    assert {span.doing for span in panels[0].trace.spans} >= {"training", "waiting", "interrupted"}
    draw(panels, tmp_path / "picture.png")
    pixels = matplotlib.image.imread(tmp_path / "picture.png")
    assert pixels.shape[1] == WIDTH_IN * DPI
    assert pixels[..., :3].min() < 0.3


def test_a_fleet_that_did_nothing_can_be_drawn(tmp_path: Path) -> None:
    draw([Panel("nothing", ["a"], Trace(frozenset({"a"}), 10.0), 1)], tmp_path / "none.png")
    assert (tmp_path / "none.png").stat().st_size > 0
