"""What every part of the demo works with."""

from dataclasses import dataclass
from pathlib import Path

from gradientmail.clock import Clock
from gradientmail.demo.children import Children
from gradientmail.demo.held_out import HeldOut
from gradientmail.demo.scale import Scale
from gradientmail.demo.screen import Screen
from gradientmail.demo.story import Story


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One demo: the run's ``url``, the directory ``out``, the story so far, and who plays."""

    url: str
    out: Path
    scale: Scale
    story: Story
    children: Children
    held_out: HeldOut
    screen: Screen
    clock: Clock

    def now_s(self) -> float:
        """Return the second of the run that it is."""
        return self.story.at_s(self.clock.wall())

    def tell(self, text: str) -> None:
        """Add an event to the story."""
        self.story.events.append((self.now_s(), text))

    def show(self, now_s: float) -> None:
        """Show the story, at second ``now_s`` of the part that is being played."""
        self.screen.show(self.story, self.children.state, now_s)
