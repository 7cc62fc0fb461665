"""Whether a contribution counts: judged once, on its header, before its data is read."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gradientmail.records.contribution import ContributionRecord
from gradientmail.records.keys import MailKey

MAX_NORM: Final = 1e12
NORM_TOLERANCE: Final = 1e-3
"""Other hardware sums in another order; a header that is off by more is wrong or lying."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What the closer knows of the round it collects for.

    Attributes:
        run: The run's name.
        fragment: Fragment being closed.
        version: Version to be committed.
        anchors: Digest of the record of each base that still counts, by base.
        precision: Codec the run's contributions use.
        tensors: Number of tensors in the fragment.
        weighs_samples: Whether a contribution weighs by them, and nothing where it has none.
        applied: Highest base already used of each learner.
    """

    run: str
    fragment: int
    version: int
    anchors: Mapping[int, str]
    precision: str
    tensors: int
    weighs_samples: bool
    applied: Mapping[str, int]

    def reads(self, key: MailKey) -> bool:
        """Whether an object under ``key`` may count: an old or a used base is not even read."""
        return key.base in self.anchors and self.applied.get(key.learner, -1) < key.base


def reason_to_reject(judged: Round, key: MailKey, record: ContributionRecord) -> str | None:
    """Return why ``record``, read from ``key``, does not count; None when its header is good."""
    wanted = {
        "run": (record.run, judged.run),
        "learner": (record.learner, key.learner),
        "nonce": (record.nonce, key.nonce),
        "fragment": (record.fragment, judged.fragment),
        "base": (record.base, key.base),
        "codec": (record.precision, judged.precision),
        "number of tensors": (len(record.norms), judged.tensors),
    }
    for what, (have, want) in wanted.items():
        if have != want:
            return f"its {what} is {have!r}, expected {want!r}"
    if record.anchor != judged.anchors[key.base]:
        return f"made against another version {key.base} than this run's"
    if judged.weighs_samples and not record.samples:
        return "this run weighs by samples, and its learner's loop counts none: step(samples=...)"
    return None


def reason_to_reject_data(claimed: Sequence[float | None], found: Sequence[float]) -> str | None:
    """Return why the data behind a good header does not count; None when it does.

    Args:
        claimed: Norm of each tensor by the header; None where it says the tensor is absent.
        found: Norm of each tensor as decoded.
    """
    for index, (claim, norm) in enumerate(zip(claimed, found, strict=True)):
        if norm > MAX_NORM:
            return f"tensor {index} has norm {norm:.3g}, above the limit of {MAX_NORM:.0e}"
        if not math.isclose(claim or 0.0, norm, rel_tol=NORM_TOLERANCE, abs_tol=1e-30):
            return f"tensor {index} has norm {norm:.6g}, its header says {claim}"
    return None
