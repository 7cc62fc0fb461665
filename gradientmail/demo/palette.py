"""Colours that colour-blind people can tell apart, the same in the terminal and in the plots.

Source: Okabe and Ito, "Color Universal Design" (2008).
"""

from collections.abc import Iterable, Mapping
from itertools import cycle

BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"
VERMILION = "#d55e00"
GREY, DARK = "#999999", "#444444"

TOGETHER, ALONE = BLUE, VERMILION


def learner_colours(names: Iterable[str]) -> Mapping[str, str]:
    """Return a colour for each learner, in their order."""
    return dict(zip(names, cycle((BLUE, ORANGE, GREEN, PURPLE, SKY))))
