"""What verifying a run found."""

import msgspec


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong with the object ``key``."""

    key: str
    reason: str


class NotDerived(msgspec.Struct, frozen=True, kw_only=True):
    """Versions ``first`` to ``last``, and why they could not be derived again."""

    first: int
    last: int
    reason: str


class FragmentVerified(msgspec.Struct, frozen=True, kw_only=True):
    """One fragment.

    Attributes:
        version: Newest version of which the chain was followed.
        payloads: Payloads that are there and have the size and digest their record says.
        derived: Versions computed anew, bit for bit what was committed.
        empty: Versions of empty rounds: the payloads of the version before.
        not_derived: All others.
    """

    fragment: int
    version: int
    payloads: int
    derived: int
    empty: int
    not_derived: tuple[NotDerived, ...]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What ``gradientmail verify --json`` prints. The run is sound where ``faults`` is empty."""

    run: str
    fragments: tuple[FragmentVerified, ...]
    faults: tuple[Fault, ...]
