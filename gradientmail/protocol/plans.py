"""Which tensors are synchronized together: fragment plans, from names and sizes alone.

A plan is made once, at ``init``, and written into the manifest, so a later gradientmail may plan
differently without touching a run. Every plan deals each tensor to exactly one fragment and leaves
no fragment empty.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from gradientmail.config import nearest
from gradientmail.errors import SettingsError
from gradientmail.records.manifest import PlanEntry


@dataclass(frozen=True, slots=True)
class TensorSize:
    """One exchanged tensor, by canonical name, and its number of elements."""

    name: str
    numel: int


FragmentPlan = tuple[tuple[PlanEntry, ...], ...]
"""Of each fragment, what it holds in layout order."""

Planner = Callable[[Sequence[TensorSize], int], FragmentPlan]


def plan_by_bytes(tensors: Sequence[TensorSize], fragments: int) -> FragmentPlan:
    """Cut the model, in its own order, into ``fragments`` runs of sizes as equal as can be.

    Raises:
        SettingsError: fewer tensors hold an element than there are fragments.

    Example:
        >>> sizes = [TensorSize("embed", 90), TensorSize("block", 30), TensorSize("head", 50)]
        >>> [[entry.name for entry in entries] for entries in plan_by_bytes(sizes, 2)]
        [['embed'], ['block', 'head']]
    """
    filled = sum(tensor.numel > 0 for tensor in tensors)
    if filled < fragments:
        raise SettingsError(
            f"fragments={fragments}, but only {filled} tensors are exchanged: "
            f"set fragments to at most {filled}"
        )
    cuts = _even_cuts([tensor.numel for tensor in tensors], fragments)
    return tuple(
        tuple(PlanEntry(tensor.name) for tensor in tensors[start:end])
        for start, end in pairwise(cuts)
    )


def plan_strided(tensors: Sequence[TensorSize], fragments: int) -> FragmentPlan:
    """Deal transformer blocks in turn: fragment p takes blocks p, p + P, p + 2P and so on.

    A tensor's block is the first integer in its dotted name: ``blocks.3.attn.weight`` is in 3.
    What comes before the first block (embeddings) goes with the first fragment, what else is in
    no block (final norm, head) with the last.

    Source: Streaming DiLoCo (arXiv:2501.18512), section 3.2: the strided pattern.

    Raises:
        SettingsError: the model has fewer blocks than there are fragments.
    """
    blocks = [_block_of(tensor.name) for tensor in tensors]
    turns = {
        block: turn for turn, block in enumerate(sorted({b for b in blocks if b is not None}))
    }
    if len(turns) < fragments:
        raise SettingsError(
            f"fragments={fragments}, but the names of this model show {len(turns)} blocks: "
            f'set fragments to at most {len(turns)} or plan = "bytes"'
        )
    dealt: list[list[PlanEntry]] = [[] for _ in range(fragments)]
    outside = 0
    for tensor, block in zip(tensors, blocks, strict=True):
        if block is not None:
            outside = fragments - 1
        fragment = outside if block is None else turns[block] % fragments
        dealt[fragment].append(PlanEntry(tensor.name))
    return tuple(tuple(entries) for entries in dealt)


def plan_by_module(
    tensors: Sequence[TensorSize], fragments: int, plan: str, module_of: Callable[[str], str]
) -> FragmentPlan:
    """Plan each module by itself, so that no fragment mixes two; larger ones get more fragments.

    Args:
        tensors: Of all modules, in model order.
        fragments: How many to make.
        plan: Name of the planner.
        module_of: A tensor's module, by its name.

    Raises:
        SettingsError: there are more modules than fragments, or the planner cannot fill them.
    """
    modules: dict[str, list[TensorSize]] = {}
    for tensor in tensors:
        modules.setdefault(module_of(tensor.name), []).append(tensor)
    if len(modules) <= 1:
        return plan_named(plan)(tensors, fragments)
    if fragments < len(modules):
        raise SettingsError(
            f"fragments={fragments}, but the model has {len(modules)} parts with settings of "
            f"their own, and no fragment mixes two: set fragments to at least {len(modules)}"
        )
    sizes = {name: sum(tensor.numel for tensor in own) for name, own in modules.items()}
    room = {name: _room(own, plan) for name, own in modules.items()}
    shares = dict.fromkeys(modules, 1)
    for _ in range(fragments - len(modules)):
        open_ones = [name for name in modules if shares[name] < room[name]] or list(modules)
        fullest = max(open_ones, key=lambda name: sizes[name] / (shares[name] + 1))
        shares[fullest] += 1
    dealt = (
        plan_named(plan if shares[name] > 1 else "bytes")(own, shares[name])
        for name, own in modules.items()
    )
    return tuple(entries for own in dealt for entries in own)


def _room(tensors: Sequence[TensorSize], plan: str) -> int:
    """Return how many fragments the planner can fill with these tensors."""
    blocks = {_block_of(tensor.name) for tensor in tensors} - {None}
    return len(blocks) if plan == "strided" else sum(tensor.numel > 0 for tensor in tensors)


PLANS: Mapping[str, Planner] = {"bytes": plan_by_bytes, "strided": plan_strided}


def plan_named(name: str) -> Planner:
    """Return the planner registered under ``name``.

    Raises:
        SettingsError: there is none; the message names the known ones.
    """
    if name not in PLANS:
        raise SettingsError(f"unknown plan {name!r}{nearest(name, PLANS)}")
    return PLANS[name]


def _block_of(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def _even_cuts(sizes: Sequence[int], parts: int) -> list[int]:
    """Return the ``parts + 1`` ends of the contiguous runs with the least sum of squared sizes.

    That sum is least where the sizes vary least. Dynamic programming over prefixes; the best start
    of a last run only moves right as the prefix or the number of runs grows (Knuth 1971), which
    bounds each search and makes the whole quadratic in the number of tensors.
    """
    before = list(accumulate(sizes, initial=0))
    count = len(sizes)
    cost = [size * size for size in before]
    starts = [[0] * (count + 1)]
    for part in range(1, parts):
        shorter, cost = cost, [0] * (count + 1)
        best = [part] * (count + 1)
        latest = count - 1
        for end in range(count, part, -1):
            candidates = range(max(part, starts[-1][end]), min(latest, end - 1) + 1)
            cost[end], best[end] = min(
                (shorter[start] + (before[end] - before[start]) ** 2, start)
                for start in candidates
            )
            latest = best[end]
        starts.append(best)
    cuts = [count]
    for best in reversed(starts):
        cuts.append(best[cuts[-1]])
    return cuts[::-1]
