"""Merging rules by name."""

from typing import Final

from gradientmail.algorithms.merge import (
    Merge,
    NormClippedMean,
    RadialDirectionalMean,
    RangeMerge,
    WeightedMean,
)
from gradientmail.algorithms.robust import Bulyan, CoordinateMedian, Krum, MultiKrum, TrimmedMean
from gradientmail.choices import Choices

MERGES: Final[Choices[Merge | RangeMerge]] = Choices(
    "merge",
    {
        "weighted-mean": WeightedMean,
        "radial-directional-mean": RadialDirectionalMean,
        "norm-clipped-mean": NormClippedMean,
        "coordinate-median": CoordinateMedian,
        "trimmed-mean": TrimmedMean,
        "krum": Krum,
        "multi-krum": MultiKrum,
        "bulyan": Bulyan,
    },
)
