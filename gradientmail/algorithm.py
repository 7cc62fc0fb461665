"""The algorithm of a run: its settings, put together as the parts that act on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gradientmail.algorithms.aggregator import MASTER, PARAMS, UPDATE, Aggregator
from gradientmail.algorithms.alignment import ALIGNMENTS, Alignment
from gradientmail.algorithms.gossip import GOSSIPS, Gossip
from gradientmail.algorithms.guards import GUARDS
from gradientmail.algorithms.outer import OUTERS, OuterOptimizer
from gradientmail.algorithms.rules import MERGES
from gradientmail.algorithms.schedules import SCHEDULES
from gradientmail.algorithms.weights import WEIGHTS, Samples
from gradientmail.choices import Choices
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.precision import Precision
from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.protocol.modules import REST, settings_of
from gradientmail.protocol.schedule import RoundSchedule
from gradientmail.protocol.selection import SELECTIONS, Selection
from gradientmail.protocol.topology import TOPOLOGIES, Topology

CHOICES: Final[Mapping[str, Choices[Any]]] = {
    known.kind: known
    for known in (
        *(OUTERS, SCHEDULES, MERGES, WEIGHTS, GUARDS),
        *(GOSSIPS, TOPOLOGIES, SELECTIONS),
    )
}
"""Every kind of named choice, by the setting that names one."""

DELTA = "delta"
"""The section of a contribution's payload."""

FAST, SLOW = "fast", "slow"
"""The sections of a neighbour's: parameters after its inner steps, and before them."""


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """What learners and closers of one run do; ``settings`` is its record in the manifest.

    Attributes:
        schedule: When each fragment's rounds are due.
        plan: Name of the fragment plan.
        delta_dtype: Codec of contributions.
        commit_dtype: Codec of the published parameters.
        update_dtype: Codec of updates; None: not published.
        aggregator: Contributions to the next version.
        alignment: A commit to local parameters.
        selection: Which live learners a round asks for.
        topology: Who mixes with whom where there is no closer.
        gossip: What they make of each other's parameters.

    Example:
        >>> algorithm_of(RunSettings(sync_every=100, fragments=4)).schedule.step_of(0)
        25
    """

    settings: RunSettings
    schedule: RoundSchedule
    plan: str
    delta_dtype: Precision
    commit_dtype: Precision
    update_dtype: Precision | None
    aggregator: Aggregator
    alignment: Alignment
    selection: Selection
    topology: Topology
    gossip: Gossip

    @property
    def quorum(self) -> int:
        """Accepted contributions that open the grace window."""
        return self.settings.quorum

    @property
    def mixing(self) -> float:
        """Share of the local value that ``Blend`` keeps."""
        return self.settings.mixing

    @property
    def alone(self) -> bool:
        """Whether learners exchange with nobody."""
        return self.settings.exchange == "nobody"

    @property
    def weighs_samples(self) -> bool:
        """Whether a contribution weighs by the samples that its learner counts."""
        return self.settings.exchange == "closer" and isinstance(self.aggregator.weights, Samples)

    def gossip_format(self, numel: int) -> PayloadFormat:
        """Return the payload format of what neighbours post to each other."""
        sections = {FAST: self.commit_dtype}
        if self.gossip.posts_slow:
            sections[SLOW] = self.commit_dtype
        return PayloadFormat(numel, sections)

    @property
    def global_batch(self) -> int | None:
        """Tokens of a step of all learners together; None: programs choose their batches."""
        return self.settings.global_batch

    @property
    def flush_on_close(self) -> bool:
        """Whether a leaving learner posts its unfinished steps."""
        return self.settings.flush_on_close

    def delta_format(self, numel: int) -> PayloadFormat:
        """Return the payload format of a contribution of ``numel`` elements."""
        return PayloadFormat(numel, {DELTA: self.delta_dtype})

    def params_format(self, numel: int) -> PayloadFormat:
        """Return the payload format of published parameters."""
        return PayloadFormat(numel, {PARAMS: self.commit_dtype})

    def update_format(self, numel: int) -> PayloadFormat | None:
        """Return the payload format of an update; None where none is published."""
        if self.update_dtype is None:
            return None
        return PayloadFormat(numel, {UPDATE: self.update_dtype})

    def outer_format(self, numel: int) -> PayloadFormat | None:
        """Return the payload format of the closer's own state; None where it has none.

        The master is kept only where rounding parts it from what is published.
        """
        rounded = self.update_dtype is not None or self.commit_dtype is not Precision.F32
        sections = [*self.aggregator.outer.sections, *([MASTER] if rounded else [])]
        return PayloadFormat(numel, dict.fromkeys(sections, Precision.F32)) if sections else None


def algorithm_of(settings: RunSettings) -> Algorithm:
    """Return the algorithm that ``settings`` describe.

    Raises:
        SettingsError: two settings contradict each other; the message says what to change.
    """
    if settings.downlink is not None and settings.published != "F32":
        raise SettingsError(
            f"downlink = {settings.downlink!r} with published = {settings.published!r}: updates "
            "are exact only against F32 parameters; set published = 'F32' or downlink = 'none'"
        )
    if settings.alignment == "blend" and not settings.mixing:
        raise SettingsError("alignment = 'blend' keeps nothing at mixing = 0: use 'overwrite'")
    if settings.alignment == "eager" and (not settings.mixing or not settings.error_feedback):
        raise SettingsError(
            "alignment = 'eager' needs error_feedback = true, and mixing above 0: about "
            "outer_lr (1 + momentum) / learners"
        )
    if settings.rounding == "stochastic" and settings.uplink not in ("I8", "I4"):
        raise SettingsError(
            f"rounding = 'stochastic' with uplink = {settings.uplink!r}: set uplink to 'I8' or "
            "'I4'"
        )
    return Algorithm(
        settings=settings,
        schedule=RoundSchedule(
            settings.sync_every, settings.fragments, settings.in_flight, settings.overlap_steps
        ),
        plan=settings.plan,
        delta_dtype=Precision(settings.uplink),
        commit_dtype=Precision(settings.published),
        update_dtype=Precision(settings.downlink) if settings.downlink else None,
        aggregator=_aggregator(settings),
        alignment=ALIGNMENTS[settings.alignment](settings.mixing),
        selection=SELECTIONS.make(settings.selection, settings.selection_settings),
        topology=TOPOLOGIES.make(settings.topology, settings.topology_settings),
        gossip=GOSSIPS.make(settings.gossip, settings.gossip_settings),
    )


def algorithms_by_module(settings: RunSettings) -> dict[str, Algorithm]:
    """Return the algorithm of each module by its prefix, and of the rest of the model.

    Raises:
        SettingsError: what a module sets cannot be.
    """
    found = {REST: algorithm_of(settings)}
    for prefix in settings.modules:
        own = settings_of(settings, prefix)
        try:
            found[prefix] = algorithm_of(own)
        except SettingsError as error:
            raise SettingsError(f"modules.{prefix}: {error}") from error
    return found


def by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which choices that were made in Python stand by name and settings.

    Raises:
        SettingsError: one has no name by which other processes could make it.

    Example:
        >>> from gradientmail.algorithms.outer.sgd import Nesterov
        >>> by_name({"outer": Nesterov(lr=0.4), "quorum": 2})
        {'outer': 'nesterov', 'outer_lr': 0.4, 'outer_settings': {'momentum': 0.9}, 'quorum': 2}
    """
    named: dict[str, Any] = {}
    for key, value in values.items():
        choices = CHOICES.get(key)
        if choices is None or isinstance(value, str):
            named[key] = value
            continue
        named[key], own = choices.describe(value)
        if key == "outer" and "lr" in own:
            named["outer_lr"] = own.pop("lr")
        named[f"{key}_settings"] = own
    return named


def _aggregator(settings: RunSettings) -> Aggregator:
    made = Aggregator(
        merge=MERGES.make(settings.merge, settings.merge_settings),
        weights=WEIGHTS.make(settings.weights, settings.weights_settings),
        outer=_outer(settings),
        clip_ratio=settings.clip_ratio,
        schedule=SCHEDULES.make(settings.outer_schedule, settings.outer_schedule_settings),
        outer_clip_norm=settings.outer_clip_norm,
        guard=GUARDS.make(settings.guard, settings.guard_settings),
    )
    if made.shortfall(settings.quorum):
        raise SettingsError(
            f"quorum = {settings.quorum}, but merge = {settings.merge!r} needs "
            f"{made.merge.least} contributions: set quorum to at least {made.merge.least}"
        )
    return made


def _outer(settings: RunSettings) -> OuterOptimizer:
    if "lr" in settings.outer_settings:
        raise SettingsError("outer_settings.lr: write it as outer_lr")
    rate = {} if settings.outer_lr is None else {"lr": settings.outer_lr}
    return OUTERS.make(settings.outer, {**rate, **settings.outer_settings})
