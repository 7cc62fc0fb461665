from .algorithm import Algorithm, algorithm_of
from .algorithms.aggregator import Aggregator, Contribution, FragmentState, RoundResult
from .algorithms.alignment import Adaptive, Blend, Carry, Overwrite
from .algorithms.presets import preset
from .closer.daemon import Closer
from .codecs.layout import layout
from .codecs.precision import Precision
from .codecs.streaming import decoded, encoded
from .config import NodeSettings, RunSettings
from .learner.program import Program
from .learner.session import Learner
from .library import init
from .protocol.schedule import RoundSchedule
from .records.commit import Participant
from .records.estimates import Estimates

__version__: str

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
    "algorithm_of",
    "decoded",
    "encoded",
    "init",
    "layout",
    "preset",
]
