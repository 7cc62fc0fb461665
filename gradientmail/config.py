"""Settings: of the run (all must share them, they live in the manifest) and of one node.

Where a value comes from, strongest first: flag, ``GRADIENTMAIL_*``, ``run.toml``, preset, default.
"""

import difflib
import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from gradientmail.errors import SettingsError

ENV_PREFIX: Final = "GRADIENTMAIL_"

MOST_LISTED: Final = 24
"""Of more known words than these only the nearest is named, where one is near."""

FAULTS: Final = (f"{ENV_PREFIX}CRASH_AT", f"{ENV_PREFIX}CLOCK")
"""No settings: they break a process on purpose (``store.crashing``, ``clock``)."""

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""A learner, closer or run name: safe in a key and in a file name."""

Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME_PATTERN}\Z")]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]
AtLeastZero = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e7)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0.0, le=1e7)]
Table = dict[str, Any]
"""Settings by name, as JSON values."""

WireFormat = Literal["F32", "F16", "BF16", "F8_E4M3", "I8", "I4", "NF4", "F4"]
DeltaFormat = Literal[WireFormat, "I2", "SIGN", "SPARSE"]
"""What a difference may travel as: what a coarse format loses is kept, and sent later."""


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every participant of a run agrees on; ``docs/settings.md`` is made from this.

    Attributes:
        algorithm: Preset the other settings default from.
        exchange: Through whom learners exchange: a closer, neighbours (gossip), or nobody.
        topology: Who mixes with whom by gossip: ring, full, star, exponential, random-pairs or
            graph.
        topology_settings: Its settings: the pairs of a graph.
        gossip: What neighbours do: average, or noloco (an outer step).
        gossip_settings: Its settings: lr, momentum and pull.
        sync_every: H, inner steps between two rounds of the same fragment; never divided.
        fragments: P, parts of the model synchronized in turn; at most H.
        local_steps: What a learner trains for a round: fixed, the schedule's steps; or dynamic,
            fewer the slower it is than the fastest, so that all are done at the same time.
        global_batch: Tokens (or samples) of a step of all learners together; each takes a share by
            its speed, `learner.batch_share`. None leaves batches to the programs.
        in_flight: Rounds a learner keeps outstanding; at most P.
        overlap_steps: Steps a learner trains past publishing before it waits for the commit; none
            never waits.
        plan: How tensors are dealt to fragments: bytes (equal sizes in model order) or strided
            (every P-th transformer block).
        modules: Settings of parts of the model, by name prefix; exchange = "nobody" keeps a part
            with each learner. See docs/algorithms.md.
        merge: How several contributions become one: weighted-mean, radial-directional-mean,
            norm-clipped-mean, coordinate-median, trimmed-mean, krum, multi-krum or bulyan; see
            docs/algorithms.md.
        merge_settings: Its settings, such as trim or byzantine.
        weights: What a contribution weighs: tokens2-per-step, tokens, samples, uniform,
            tokens-by-staleness or tokens-power.
        weights_settings: Its settings.
        outer: Outer optimizer: sgd, heavy-ball, nesterov, adam, yogi, adagrad, delayed-nesterov or
            torch.optim.NAME; see docs/algorithms.md.
        outer_lr: Learning rate of the outer step; none takes the outer optimizer's own.
        outer_settings: Its other settings, such as momentum.
        outer_schedule: What the learning rate does from version to version: constant, linear,
            cosine, inverse-sqrt or steps.
        outer_schedule_settings: Its settings, such as warmup_versions.
        outer_clip_norm: A merged pseudo-gradient with a larger norm is scaled down to it; none
            scales nothing.
        alignment: What a commit does to local parameters: overwrite, blend, carry, adaptive or
            eager.
        mixing: Share of the local value that blend keeps; of eager, what one of a learner's own
            steps moves a version by.
        uplink: Codec of pseudo-gradients.
        downlink: Codec of updates from version to version; none publishes parameters only.
        published: Codec of the published parameters; the master stays in float32.
        rounding: How the uplink rounds: nearest, or stochastic (I8 and I4), whose mean is exact.
        error_feedback: Whether what uplink rounding loses is added to the next contribution.
        error_feedback_decay: Share of it that is added, round after round.
        buffers: Float buffers (BatchNorm statistics): averaged, or local to each learner.
        quorum: Accepted contributions that open the grace window.
        grace_s: How long it stays open; none until every live learner has been heard.
        max_staleness: Oldest contribution that counts, in versions behind.
        guard: What is done about a learner that went elsewhere than the round: off (nothing),
            suppress or damp.
        guard_settings: Its settings.
        clip_ratio: A norm above this many times the round's median is scaled down to it; none
            scales nothing.
        flush_on_close: A leaving learner posts its unfinished steps as final.
        selection: Which live learners a round asks for: all, random (a fraction) or tags. The
            others sit it out, and rounds do not wait for them.
        selection_settings: Its settings: fraction, or the tags required.
        proximal: FedProx's mu: adds mu (theta - anchor) to the gradients of each inner step.
        stop_after_rounds: The run ends after this many rounds; none when asked to.
        poll_s: Seconds between two looks at the store.
        lease_s: How long a silent closer keeps the lease.
        presence_s: How long a silent learner counts as live.
        keep_versions: Versions whose payloads a sweep leaves, at least max_staleness + 1.
        retain: Keep every payload and contribution, so that `gradientmail verify` can re-derive
            every version; nothing is swept.
        seed: Where programs draw their initial parameters from.
    """

    algorithm: str = "decoupled-diloco"
    exchange: Literal["closer", "gossip", "nobody"] = "closer"
    topology: str = "ring"
    topology_settings: Table = {}
    gossip: str = "average"
    gossip_settings: Table = {}
    sync_every: AtLeastOne = 500
    fragments: Annotated[int, msgspec.Meta(ge=1, le=9999)] = 1
    local_steps: Literal["fixed", "dynamic"] = "fixed"
    global_batch: AtLeastOne | None = None
    in_flight: AtLeastOne = 1
    overlap_steps: AtLeastZero | None = 0
    plan: Literal["bytes", "strided"] = "bytes"
    modules: Table = {}
    merge: str = "weighted-mean"
    merge_settings: Table = {}
    weights: str = "uniform"
    weights_settings: Table = {}
    outer: str = "nesterov"
    outer_lr: Annotated[float, msgspec.Meta(gt=0.0, le=100.0)] | None = None
    outer_settings: Table = {}
    outer_schedule: str = "constant"
    outer_schedule_settings: Table = {}
    outer_clip_norm: Annotated[float, msgspec.Meta(gt=0.0, le=1e12)] | None = None
    alignment: Literal["overwrite", "blend", "carry", "adaptive", "eager"] = "overwrite"
    mixing: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0
    uplink: DeltaFormat = "F32"
    downlink: DeltaFormat | None = None
    published: WireFormat = "F32"
    rounding: Literal["nearest", "stochastic"] = "nearest"
    error_feedback: bool = True
    error_feedback_decay: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    buffers: Literal["averaged", "local"] = "averaged"
    quorum: AtLeastOne = 1
    grace_s: Seconds | None = None
    max_staleness: AtLeastZero = 0
    guard: str = "off"
    guard_settings: Table = {}
    clip_ratio: Annotated[float, msgspec.Meta(ge=1.0, le=1e6)] | None = 10.0
    flush_on_close: bool = False
    selection: str = "all"
    selection_settings: Table = {}
    proximal: Annotated[float, msgspec.Meta(ge=0.0, le=1e6)] = 0.0
    stop_after_rounds: AtLeastOne | None = None
    poll_s: PositiveSeconds = 1.0
    lease_s: PositiveSeconds = 30.0
    presence_s: PositiveSeconds = 60.0
    keep_versions: AtLeastOne = 3
    retain: bool = False
    seed: AtLeastZero = 0


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What concerns one process only.

    Attributes:
        name: Name of this learner or closer; none draws one, which the state directory keeps.
        state_dir: Where a learner keeps what a restart needs; none keeps nothing.
        device: Torch device of the model.
        threads: Compute threads; none leaves torch's choice.
        tags: What a learner says of itself, words with commas between, for selection = "tags".
        throttle: Slows a learner down to this share of its speed, to play an unequal fleet.
        save_every_s: Least seconds between two saves of the local state.
        spool_dir: Where a closer keeps the payloads it works on; none uses the system's temporary
            directory.
        store_client: Client library for s3:// : obstore or s3fs.
        retry_deadline_s: How long one store operation is retried before it fails.
        log_format: human or json.
        log_level: Least severe level that is logged.
    """

    name: Name | None = None
    state_dir: str | None = None
    device: str = "cpu"
    threads: AtLeastOne | None = None
    tags: str = ""
    throttle: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 1.0
    save_every_s: Seconds = 30.0
    spool_dir: str | None = None
    store_client: Literal["obstore", "s3fs"] = "obstore"
    retry_deadline_s: PositiveSeconds = 120.0
    log_format: Literal["human", "json"] = "human"
    log_level: Literal["debug", "info", "warning", "error"] = "info"


S = TypeVar("S", RunSettings, NodeSettings)

OWN_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "merge": ("merge_settings",),
    "weights": ("weights_settings",),
    "outer": ("outer_lr", "outer_settings"),
    "outer_schedule": ("outer_schedule_settings",),
    "guard": ("guard_settings",),
    "topology": ("topology_settings",),
    "gossip": ("gossip_settings",),
    "selection": ("selection_settings",),
}
"""Of each setting that names a choice: where that choice's own settings are written."""

_ELSEWHERE: Final[Mapping[type, tuple[type[msgspec.Struct], str]]] = {
    RunSettings: (NodeSettings, "[node] table"),
    NodeSettings: (RunSettings, "top level of run.toml"),
}
"""Of each kind of settings: the other kind, and where in ``run.toml`` that one is written."""


def resolve(kind: type[S], *layers: tuple[str, Mapping[str, Any]]) -> S:
    """Return settings of type ``kind`` from ``(source name, values)`` layers, weakest first.

    Values may be of their type or text as typed in a shell; ``none`` is the absent value. Tables
    of several layers become one; ``outer_settings.momentum`` is one entry of a table. A layer that
    makes another choice (``outer``) leaves nothing of what weaker ones set for theirs.

    Raises:
        SettingsError: naming the source, the key, and the nearest known one or the allowed range.

    Example:
        >>> resolve(NodeSettings, ("run.toml", {"threads": 2}), ("flag", {"threads": "4"})).threads
        4
    """
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for source, values in layers:
        _forget_other_choices(merged, values)
        for name, value in values.items():
            key = name.partition(".")[0] if _is_table(kind, name) else name
            _require_known(kind, source, key)
            if _is_table(kind, key):
                merged[key] = _table(source, name, value, merged.get(key, {}))
            else:
                merged[key] = None if value == "none" else value
            origin[key] = source
    for key, value in merged.items():
        try:
            msgspec.convert({key: value}, kind, strict=not isinstance(value, str))
        except msgspec.ValidationError as exc:
            reason = _reason(kind, key, value, exc)
            raise SettingsError(f"{origin[key]}: {key} = {value!r}: {reason}") from exc
    return msgspec.convert(merged, kind, strict=False)


def checked(node: NodeSettings | None) -> NodeSettings:
    """Return what a program passed, checked like any other source; a path becomes text.

    Raises:
        SettingsError: a value is not allowed.
    """
    given = msgspec.structs.asdict(node or NodeSettings())
    paths = {
        key: os.fspath(value) for key, value in given.items() if isinstance(value, os.PathLike)
    }
    return resolve(NodeSettings, ("NodeSettings", given | paths))


def from_environment(kind: type[S], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the ``GRADIENTMAIL_*`` variables that set a field of ``kind``.

    Raises:
        SettingsError: a variable with the prefix names no setting at all.
    """
    found = {}
    for variable, value in environ.items():
        if not variable.startswith(ENV_PREFIX) or variable in FAULTS:
            continue
        key = variable.removeprefix(ENV_PREFIX).lower()
        if key in kind.__struct_fields__:
            found[key] = value
        elif key not in _ELSEWHERE[kind][0].__struct_fields__:
            known = kind.__struct_fields__ + _ELSEWHERE[kind][0].__struct_fields__
            raise SettingsError(f"environment: unknown setting {variable}{_instead(key, known)}")
    return found


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word nearest to ``word``, if one is near, and the list of all.

    Without the list where it is long and a word is near.

    >>> nearest("tokns", ["tokens", "uniform"])
    "; did you mean 'tokens'? known: tokens, uniform"
    >>> nearest("x", ["tokens", "uniform"])
    '; known: tokens, uniform'
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1)
    said = [f"did you mean {close[0]!r}?"] if close else []
    if names and not (close and len(names) > MOST_LISTED):
        said.append(f"known: {', '.join(names)}")
    return f"; {' '.join(said)}" if said else ""


def name_advice(wrong: str) -> str:
    """Say what a name is made of, with one made from ``wrong`` where anything of it is left.

    >>> name_advice("bo b")
    "use 1 to 64 letters a to z or A to Z, digits, and, not first, '-' and '_', such as 'bo-b'"
    """
    fit = re.sub("[^A-Za-z0-9_-]+", "-", wrong).strip("-_")[:64]
    example = f", such as {fit!r}" if fit else ""
    return f"use 1 to 64 letters a to z or A to Z, digits, and, not first, '-' and '_'{example}"


def _forget_other_choices(merged: dict[str, Any], values: Mapping[str, Any]) -> None:
    for choice, own in OWN_SETTINGS.items():
        if choice in values and values[choice] != merged.get(choice):
            for key in own:
                merged.pop(key, None)


def _is_table(kind: type[msgspec.Struct], name: str) -> bool:
    return name.partition(".")[0] in _tables(kind)


@functools.cache
def _tables(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return which fields are tables: reading the types anew would cost more than all the rest."""
    return frozenset(one.name for one in msgspec.structs.fields(kind) if one.type == Table)


def _table(source: str, name: str, value: object, before: Table) -> Table:
    """Return a table with what a layer says of it: all, text in JSON, or one entry."""
    key, dot, entry = name.partition(".")
    literal = _literal(value)
    if dot:
        return {**before, entry: literal}
    if literal is None:
        return {}
    if not isinstance(literal, dict):
        raise SettingsError(
            f'{source}: {key} = {value!r}: write a table, {{"name": value}}, or one entry of it '
            f"as {key}.name"
        )
    return {**before, **literal}


def _literal(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """Return what a table holds for ``value``; text is JSON where it can be."""
    if not isinstance(value, str):
        return msgspec.json.decode(msgspec.json.encode(value))  # a tuple is a list there
    try:
        return None if value == "none" else msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _require_known(kind: type[msgspec.Struct], source: str, key: str) -> None:
    if key in kind.__struct_fields__:
        return
    other, place = _ELSEWHERE[kind]
    if key in other.__struct_fields__:
        raise SettingsError(f"{source}: {key!r} belongs in the {place}")
    known = kind.__struct_fields__
    raise SettingsError(f"{source}: unknown setting {key!r}{_instead(key, known)}")


def _instead(key: str, known: Iterable[str]) -> str:
    """Say which of the known settings may have been meant."""
    return "; a preset is named by 'algorithm'" if key == "preset" else nearest(key, known)


def _reason(
    kind: type[msgspec.Struct], key: str, value: object, exc: msgspec.ValidationError
) -> str:
    """Say what to write instead: msgspec's own words, but for words in our files."""
    (hint,) = (field.type for field in msgspec.structs.fields(kind) if field.name == key)
    types = (hint, *get_args(hint))
    choices = [c for t in types if get_origin(t) is Literal for c in get_args(t)]
    if choices:
        return f"not one of its values{nearest(str(value), choices)}"
    if hint is bool:
        return "write true or false"
    if Name in types:
        return name_advice(str(value))
    return str(exc).partition(" - at ")[0].replace("null", "none")
