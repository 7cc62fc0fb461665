"""Two published tables, and what we compute in their place.

1. Streaming DiLoCo (arXiv 2501.18512), table 4: Gbit/s between learners to keep the processors
   busy for a share of the time. Read from the paper's HTML as it is kept in the public repository
   deep-diver/ai-paper-reviewer. The values lie on 50 points from 0.1 to 1000, evenly spaced in
   their logarithm, so an entry is right when it is on the same point.
2. Decoupled DiLoCo (arXiv 2604.21428), table 1: goodput of chips of which each is interrupted once
   a year. Second-hand: public summaries of the paper, which agree where they overlap; the paper
   itself could not be had.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gradientmail.forecast.fleet import Closers, Fleet, Learners, Model
from gradientmail.forecast.layers import Training, least_index
from gradientmail.forecast.reading import settings_side_by_side
from gradientmail.forecast.world import forecast
from gradientmail.protocol.schedule import RoundSchedule

# -- table 4 of Streaming DiLoCo ------------------------------------------------------------

POINTS: Final = 50
GRID_GBIT_S: Final = [10.0 ** (-1 + 4 * index / (POINTS - 1)) for index in range(POINTS)]
SHARES: Final = (0.50, 0.80, 0.90, 0.95, 0.99)
SYNC_EVERY: Final = 100
LAYERS_A_FRAGMENT: Final = 3
BITS: Final = 16.0
"""Of a parameter on the line; the paper does not say."""

MISSED_BY: Final = 1
"""The paper's entries fit this width when each is the last point that misses the share."""


@dataclass(frozen=True)
class Scale:
    """One model of the table: parameters, layers, seconds a step."""

    name: str
    parameters: float
    layers: int
    step_s: float


SCALES: Final = (
    Scale("1B", 1e9, 24, 0.1),
    Scale("10B", 1e10, 48, 0.8),
    Scale("100B", 1e11, 108, 4.9),
)
METHODS: Final = (
    "data parallel",
    "DiLoCo",
    "streaming",
    "streaming, overlapped",
    "streaming, overlapped, 4 bits",
)
BANDWIDTHS: Final[Mapping[str, tuple[tuple[float, ...], ...]]] = {
    "1B": (
        (86.8, 152.6, 184.2, 222.3, 569.0),
        (1.4, 6.2, 13.3, 23.3, 86.8),
        (1.4, 5.2, 9.1, 16.0, 28.1),
        (1.4, 4.3, 6.2, 9.1, 11.0),
        (0.4, 0.9, 1.7, 2.0, 3.0),
    ),
    "10B": (
        (104.8, 222.3, 222.3, 268.3, 471.5),
        (1.7, 7.5, 16.0, 33.9, 104.8),
        (1.7, 5.2, 9.1, 13.3, 19.3),
        (1.7, 3.6, 5.2, 6.2, 7.5),
        (0.4, 0.9, 1.4, 1.4, 1.7),
    ),
    "100B": (
        (184.2, 323.8, 390.7, 390.7, 471.5),
        (3.0, 11.0, 23.3, 49.4, 184.2),
        (2.4, 6.2, 9.1, 11.0, 19.3),
        (1.7, 3.6, 4.3, 5.2, 5.2),
        (0.5, 0.9, 1.1, 1.1, 1.4),
    ),
}


@dataclass(frozen=True)
class Entry:
    """One entry of a table: what is published, what we compute, and how far apart they are.

    Attributes:
        off: Points of the grid, or percentage points.
    """

    row: str
    column: str
    published: float
    computed: float
    off: float


def bandwidths(bits: float = BITS, missed_by: int = MISSED_BY) -> Iterator[Entry]:
    """Yield every entry of table 4."""
    for scale in SCALES:
        for method, published in zip(METHODS, BANDWIDTHS[scale.name], strict=True):
            training, steps = _training(scale, method, bits)
            grid = [1e9 * gbit_s for gbit_s in GRID_GBIT_S]
            for share, value in zip(SHARES, published, strict=True):
                index = max(0, least_index(training, share, grid, steps=steps) - missed_by)
                yield Entry(
                    row=f"{scale.name} {method}",
                    column=f"{share:.0%}",
                    published=value,
                    computed=GRID_GBIT_S[min(index, POINTS - 1)],
                    off=index - nearest_point(value),
                )


def nearest_point(gbit_s: float) -> int:
    """Return the index of the point of the grid that a rounded value stands for.

    >>> nearest_point(86.8), nearest_point(0.9)
    (36, 12)
    """
    distance = [abs(math.log(point / gbit_s)) for point in GRID_GBIT_S]
    return distance.index(min(distance))


def _training(scale: Scale, method: str, bits: float) -> tuple[Training, int]:
    """Return the method at that scale, and how many steps to run: whole cycles, and one more."""
    sent = scale.parameters * (bits / 4 if "4 bits" in method else bits)
    schedule, steps = None, 41
    if method != "data parallel":
        fragments = scale.layers // LAYERS_A_FRAGMENT if "streaming" in method else 1
        overlap = 1 if "overlapped" in method else 0
        schedule = RoundSchedule(SYNC_EVERY, fragments, overlap_steps=overlap)
        steps = 4 * SYNC_EVERY + 1
    training = Training(layers=scale.layers, step_s=scale.step_s, bits=sent, schedule=schedule)
    return training, steps


# -- table 1 of Decoupled DiLoCo ------------------------------------------------------------

CHIPS: Final = (150_000, 300_000, 600_000, 1_200_000, 2_400_000)
GOODPUT: Final[Mapping[str, tuple[int, ...]]] = {
    "1, not elastic": (72, 57, 38, 27, 18),
    "1, elastic": (88, 80, 69, 58, 40),
    "2": (94, 88, 80, 70, 54),
    "4": (96, 93, 89, 82, 73),
    "8": (98, 96, 94, 88, 80),
    "16": (99, 98, 96, 93, 86),
}
YEAR_D: Final = 365.25
STOPPED_S: Final = {False: 81.8, True: 28.7}
"""How long an interruption stops a learner, elastic or not: the summaries do not say, so it is
what the first entry of either row calls for; the other 28 entries follow."""

FITTED: Final = (("1, not elastic", "150k"), ("1, elastic", "150k"))
HOURS: Final = 48.0
WIDE_MBIT_S: Final = 1e9


def goodputs(hours: float = HOURS) -> Iterator[Entry]:
    """Yield every entry of table 1: forecasts of groups of chips, each a learner of ours."""
    for row, published in GOODPUT.items():
        groups, elastic = int(row.partition(",")[0]), "not" not in row
        for chips, percent in zip(CHIPS, published, strict=True):
            computed = 100.0 * goodput(chips, groups, STOPPED_S[elastic], hours)
            yield Entry(row, f"{chips // 1000}k", percent, computed, computed - percent)


def goodput(chips: int, groups: int, stopped_s: float, hours: float) -> float:
    """Return the share of all chips' speed that is used, where ``groups`` learners share them.

    Lines and closer are wide and nobody waits: what is lost is lost to interruptions.
    """
    fleet = Fleet(
        model=Model(parameters=4 * 4096, blocks=4),
        learners=(
            Learners(
                name="group",
                count=groups,
                step_s=1.0,
                interruptions_per_day=chips / groups / YEAR_D,
                interruption_s=stopped_s,
                save_every_s=1e-3,
                up_mbit_s=WIDE_MBIT_S,
                down_mbit_s=WIDE_MBIT_S,
            ),
        ),
        closer=Closers(numbers_per_s=1e12, up_mbit_s=WIDE_MBIT_S, down_mbit_s=WIDE_MBIT_S),
        run={"sync_every": 400, "fragments": 4, "in_flight": 2},
        hours=hours,
        seed=1,
    )
    (settings,) = settings_side_by_side(fleet).values()
    return forecast(fleet, settings).utilisation
