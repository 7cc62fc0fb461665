"""Train one model on scattered machines that share nothing but a bucket or a directory.

import gradientmail as gm

with gm.Learner("s3://bucket/run", model, optimizer=optimizer) as learner:
for batch in batches:
loss = train(batch)
learner.step(tokens=batch.numel(), loss=loss)
if learner.done:
break
"""

from gradientmail.algorithm import Algorithm, algorithm_of
from gradientmail.algorithms.aggregator import (
    Aggregator,
    Contribution,
    FragmentState,
    RoundResult,
)
from gradientmail.algorithms.alignment import Adaptive, Blend, Carry, Overwrite
from gradientmail.algorithms.presets import preset
from gradientmail.closer.daemon import Closer
from gradientmail.codecs.layout import layout
from gradientmail.codecs.precision import Precision
from gradientmail.codecs.streaming import decoded, encoded
from gradientmail.config import NodeSettings, RunSettings
from gradientmail.learner.program import Program
from gradientmail.learner.session import Learner
from gradientmail.library import init
from gradientmail.protocol.schedule import RoundSchedule
from gradientmail.records.commit import Participant
from gradientmail.records.estimates import Estimates
from gradientmail.version import VERSION

__version__ = VERSION

__all__ = [
    "Adaptive",
    "Aggregator",
    "Algorithm",
    "Blend",
    "Carry",
    "Closer",
    "Contribution",
    "Estimates",
    "FragmentState",
    "Learner",
    "NodeSettings",
    "Overwrite",
    "Participant",
    "Precision",
    "Program",
    "RoundResult",
    "RoundSchedule",
    "RunSettings",
    "__version__",
    "algorithm_of",
    "decoded",
    "encoded",
    "init",
    "layout",
    "preset",
]
