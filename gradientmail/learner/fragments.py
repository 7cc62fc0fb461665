"""What the training side knows of each fragment and of what it posted."""

from dataclasses import dataclass, field

from torch import Tensor

from gradientmail.learner.parameters import FragmentTensors
from gradientmail.learner.posts import UNTRAINED, Trained
from gradientmail.run import Version


@dataclass(frozen=True, kw_only=True)
class OnItsWay:
    """A contribution whose fate is not known yet."""

    key: str
    base: int
    trained: Trained


@dataclass
class LocalFragment:
    """One fragment as this learner has it.

    Attributes:
        version: The version it is aligned with.
        committed: That version's parameters, exactly; read only.
        anchor: The same, rounded to what the model can hold; what pseudo-gradients start from.
        anchored: Trained when the anchor was taken, less what alignments kept.
        snapshot: Local parameters when the contribution against this version was made.
        snapshot_at: Trained by then.
        owed: What of the steps since the anchor is in the residual alone; see ``Eager``.
        restored: This self has not aligned it yet: an earlier one began on this version.
        posted: Contributions whose fate is not known yet; the last may be against this version.
    """

    tensors: FragmentTensors
    version: Version
    committed: Tensor
    anchor: Tensor
    anchored: Trained = UNTRAINED
    snapshot: Tensor | None = None
    snapshot_at: Trained = UNTRAINED
    owed: Tensor | None = None
    restored: bool = False
    posted: list[OnItsWay] = field(default_factory=list)

    @property
    def start(self) -> Tensor:
        """Where the steps since the anchor begin: there, but for what is owed already."""
        return self.anchor if self.owed is None else self.anchor + self.owed


@dataclass
class Tally:
    """How many contributions were posted, were in a commit, and were passed over."""

    posted: int = 0
    applied: int = 0
    dropped: int = 0
