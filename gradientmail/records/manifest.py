"""The manifest: what every participant of a run must agree on. Created once, last at ``init``."""

from typing import Literal

import msgspec

from gradientmail.config import RunSettings
from gradientmail.records.fields import Count, Digest, Key, Name, Positive, Text


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the parameter contract.

    Attributes:
        name: Canonical name: without what ``torch.compile`` and data parallel wrappers add.
        shape: Its logical shape; () for a scalar.
        dtype: The name torch gives it, such as ``float32``.
        kind: Parameter or buffer.
        trainable: Whether its values are exchanged: a parameter that takes inner steps, or a float
            buffer under the policy ``averaged``. False: frozen, or local to each learner.
        alias: Canonical name of the first tensor it shares storage with (tied weights); None for
            that first one.
    """

    name: str
    shape: tuple[Count, ...]
    dtype: str
    kind: Literal["parameter", "buffer"]
    trainable: bool
    alias: str | None = None


class PlanEntry(msgspec.Struct, frozen=True):
    """Rows ``[start_row, end_row)`` of one tensor in a fragment; None: to the last row."""

    name: str
    start_row: Count = 0
    end_row: Count | None = None


class PayloadRef(msgspec.Struct, frozen=True, kw_only=True):
    """Where a payload is, its size, and what its bytes must hash to."""

    key: Key
    size_bytes: Positive
    digest: Digest


class FragmentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment: which tensors it holds, in layout order, and its parameters at version 0."""

    entries: tuple[PlanEntry, ...]
    params: PayloadRef


class Manifest(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="kind",
    tag="manifest/1",
    omit_defaults=True,
):
    """One run. ``settings`` never change; another set of settings is another run (a fork).

    Attributes:
        run: Name drawn at ``init``: records of another run are refused by it.
        created_at: POSIX seconds, for people.
        program: The ``module:function`` the command line trains with; None for a user's own loop.
    """

    run: Name
    created_at: float
    created_by: Text
    settings: RunSettings
    tensors: tuple[TensorSpec, ...]
    fragments: tuple[FragmentSpec, ...]
    program: Text | None = None
