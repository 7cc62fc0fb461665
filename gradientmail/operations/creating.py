"""Creating a run: the initial model is published, and then the manifest makes it a run.

Payloads go first, under names no one else uses, and the manifest last, created once. So a run is
there or it is not, and what a failed attempt left behind is never read.
"""

import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from torch import Tensor, nn

from gradientmail.algorithm import Algorithm, algorithms_by_module
from gradientmail.algorithms.aggregator import PARAMS
from gradientmail.clock import Clock, fresh_nonce
from gradientmail.codecs.layout import FragmentLayout, chunks
from gradientmail.codecs.streaming import BufferTarget, PayloadWriter
from gradientmail.config import RunSettings
from gradientmail.errors import PayloadError, RunExistsError, SettingsError
from gradientmail.learner.parameters import FragmentTensors, describe, exchanged
from gradientmail.mailbox import Mailbox
from gradientmail.protocol.modules import prefix_of, require_matched, stays_local
from gradientmail.protocol.plans import FragmentPlan, TensorSize, plan_by_module
from gradientmail.records import keys
from gradientmail.records.canonical import digest_of
from gradientmail.records.manifest import (
    FragmentSpec,
    Manifest,
    PayloadRef,
    PlanEntry,
    TensorSpec,
)
from gradientmail.run import fragment_layout, numel_of
from gradientmail.store.base import Created, Store
from gradientmail.version import VERSION

log = logging.getLogger(__name__)

MAX_TENSORS = 10_000
"""Of one fragment: their norms must fit in a header (``codecs.payload.METADATA_LIMIT_BYTES``)."""

POLLS_PER_SIGN = 4
"""A sign of life must be seen at least this often before its absence means anything."""


async def create_run(
    store: Store,
    model: nn.Module,
    settings: RunSettings,
    *,
    program: str | None = None,
    clock: Clock,
    rng: random.Random,
) -> Manifest:
    """Create a run in ``store``, the values of ``model`` being version 0 of every fragment.

    Memory for two float32 copies of the largest fragment is needed. The store is trusted here:
    ``gradientmail.doctor`` is what proves one.

    Raises:
        SettingsError: a setting or the model cannot work; nothing was written.
        RunExistsError: there is a run here already; it is untouched.

    Example:
        >>> store = open_store("runs/one", clock=clock, rng=rng)
        >>> manifest = await create_run(store, model, RunSettings(), clock=clock, rng=rng)
        >>> manifest.fragments[0].params.size_bytes
        20480
    """
    algorithms = algorithms_by_module(settings)
    _require_sound(settings)
    tensors = _contract(model, settings)
    plan = plan_tensors(exchanged(tensors), settings)
    await require_no_run(store)
    specs = {spec.name: spec for spec in tensors}
    fragments = []
    for fragment, entries in enumerate(plan):
        own = algorithms[prefix_of(entries[0].name, settings.modules)]
        data = memoryview(_encoded(model, fragment_layout(entries, specs), own))
        key = keys.payload(fragment, 0, fresh_nonce(rng), PARAMS)
        await store.put(key, [data])
        params = PayloadRef(key=key, size_bytes=len(data), digest=digest_of(data))
        fragments.append(FragmentSpec(entries=entries, params=params))
    manifest = Manifest(
        run=f"run-{fresh_nonce(rng)[:12]}",
        created_at=clock.wall(),
        created_by=f"gradientmail {VERSION}",
        settings=settings,
        tensors=tensors,
        fragments=tuple(fragments),
        program=program,
    )
    if await Mailbox(store).create_manifest(manifest) is Created.EXISTS:
        raise _exists()
    return manifest


def _contract(model: nn.Module, settings: RunSettings) -> tuple[TensorSpec, ...]:
    """Return the contract of ``model``, of which every module of the settings has a part."""
    local = partial(stays_local, settings=settings)
    tensors = describe(model, buffers=settings.buffers, local=local)
    require_matched((spec.name for spec in tensors), settings)
    return tensors


async def require_no_run(store: Store) -> None:
    """Find no run in ``store``.

    Raises:
        RunExistsError: there is one.
    """
    if await store.read(keys.MANIFEST) is not None:
        raise _exists()


def plan_tensors(specs: Sequence[TensorSpec], settings: RunSettings) -> FragmentPlan:
    """Deal the exchanged tensors to fragments: parameters by the plan, buffers to their module.

    A buffer goes where the first parameter of its module went, or, where that has none, of the
    nearest module around it that has.

    Raises:
        SettingsError: the plan cannot fill that many fragments, or fills one with too many.
    """
    sizes = [TensorSize(s.name, numel_of(s)) for s in specs if s.kind == "parameter"]
    plan = plan_by_module(
        sizes, settings.fragments, settings.plan, lambda name: prefix_of(name, settings.modules)
    )
    dealt = [list(entries) for entries in plan]
    home: dict[str, int] = {}
    for fragment, entries in enumerate(dealt):
        for entry in entries:
            for module in _modules_around(entry.name):
                home.setdefault(module, fragment)
    for spec in specs:
        if spec.kind == "buffer":
            module = next(module for module in _modules_around(spec.name) if module in home)
            dealt[home[module]].append(PlanEntry(spec.name))
    if (most := max(map(len, dealt))) > MAX_TENSORS:
        raise SettingsError(
            f"a fragment of {most} tensors, at most {MAX_TENSORS} are possible (a contribution "
            f"names the norm of each): set fragments above {settings.fragments}"
        )
    return tuple(tuple(entries) for entries in dealt)


def _modules_around(name: str) -> Iterator[str]:
    """Yield the modules a tensor is in, innermost first: "a.b.weight" is in "a.b", "a" and ""."""
    while name:
        name = name.rpartition(".")[0]
        yield name


def _require_sound(settings: RunSettings) -> None:
    """Refuse settings under which nobody could ever be told to be alive."""
    least_s = POLLS_PER_SIGN * settings.poll_s
    signs: Mapping[str, float] = {"presence_s": settings.presence_s, "lease_s": settings.lease_s}
    for name, value in signs.items():
        if value <= least_s:
            raise SettingsError(
                f"{name} = {value:g} with poll_s = {settings.poll_s:g}: a sign of life must be "
                f"looked for more than {POLLS_PER_SIGN} times before it counts as missing; set "
                f"{name} above {least_s:g} or poll_s below {value / POLLS_PER_SIGN:g}"
            )


def _encoded(model: nn.Module, layout: FragmentLayout, algorithm: Algorithm) -> bytearray:
    """Return the payload of the model's present values of one fragment."""
    flat = FragmentTensors(model, layout).gather()
    target = BufferTarget()
    writer = PayloadWriter(algorithm.params_format(layout.numel), target)
    try:
        for start, stop in chunks(0, layout.numel):
            writer.write(PARAMS, start, flat[start:stop])
    except PayloadError as error:
        raise SettingsError(
            f"the initial values of {_largest(flat, layout)!r} cannot be published: {error}"
        ) from error
    return target.data


def _largest(flat: Tensor, layout: FragmentLayout) -> str:
    """Return the tensor with the largest magnitude; NaN is the largest of all."""
    magnitude = flat.abs().nan_to_num_(nan=math.inf, posinf=math.inf)
    slots = [slot for slot in layout.slots if slot.numel]
    return max(slots, key=lambda at: magnitude[at.offset : at.offset + at.numel].amax()).name


def _exists() -> RunExistsError:
    return RunExistsError(
        "there is a run here already, untouched: `gradientmail status` shows it, `gradientmail "
        "learner` joins it; for a new run choose another URL"
    )
