"""A commit meets local parameters: the run's rule, applied where it costs a step the least.

Fresh memory costs several times what is written into it, so the local vector is aligned in place,
by pieces that stay in the cache where the rule allows (measured: ``docs/log.md``).
"""

from dataclasses import dataclass

from torch import Tensor

from gradientmail.algorithms.alignment import Alignment
from gradientmail.codecs.layout import chunks


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """What local parameters of a fragment meet; flat float32 vectors, see ``alignment``.

    Attributes:
        start: Where the steps since the anchor begin.
        committed: The newly committed parameters.
        snapshot: What was local when the contribution was made.
        end: Where the parameters end and float buffers begin.
    """

    start: Tensor
    committed: Tensor
    snapshot: Tensor
    end: int


def align(
    rule: Alignment, meeting: Meeting, local: Tensor, *, keep_buffers: bool
) -> Tensor | None:
    """Turn ``local`` into the aligned parameters; return what is owed, where the rule owes.

    Args:
        rule: The run's.
        meeting: The other vectors; they stay as they are.
        local: The local parameters and buffers; overwritten.
        keep_buffers: With kept steps, float buffers stay: taken over, these steps' statistics
            would reach nobody; carried on, the drift of a variance could make it negative.
    """
    start, committed, snapshot = meeting.start, meeting.committed, meeting.snapshot
    end = meeting.end
    fresh = local - snapshot if rule.owes else None
    for low, high in chunks(0, end) if rule.elementwise else [(0, end)]:
        at = slice(low, high)
        local[at] = rule.align(start[at], committed[at], local[at], snapshot[at])
    if not keep_buffers:
        local[end:] = committed[end:]
    if fresh is None:
        return None
    owed = local - committed - fresh
    owed[end:] = 0.0
    return owed
