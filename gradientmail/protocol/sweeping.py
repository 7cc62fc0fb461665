"""What no reader can need any more: the decision as values; ``gradientmail.closer`` deletes.

Of one fragment, by version::

    0 ............. boundary | ............ head - keep | ............ head
    may be deleted           | pinned by a reader       | always kept

The boundary is announced by a create-once record before anything under it is deleted, and never
moves back: a reader that misses a payload at or under it jumps to the head, one above it is an
alarm.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

from gradientmail.errors import SettingsError

NOTHING_SWEPT: Final = -1
"""The boundary before the first sweep: every version, from 0 on, is above it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweeping:
    """The sweep of one fragment.

    Attributes:
        keep: Newest versions that are always kept, at least 1.
        max_pin_s: How long a reader may hold one version, so that a dead one cannot for ever.
        boundary: Newest version that may be deleted; ``NOTHING_SWEPT`` before the first sweep.
        pins: Versions readers are still on, with the instant each was first seen pinned.

    Raises:
        SettingsError: ``keep`` would leave no version at all.
    """

    keep: int
    max_pin_s: float
    boundary: int = NOTHING_SWEPT
    pins: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.keep < 1:
            raise SettingsError(
                f"keep={self.keep}: at least 1, or the head itself would be deleted"
            )

    def from_boundary(self, boundary: int) -> "Sweeping":
        """Go on from a boundary that an earlier sweeper announced."""
        return replace(self, boundary=max(self.boundary, boundary))

    def observed(self, *, now: float, head: int, pinned: Iterable[int]) -> "Sweeping":
        """Move the boundary as far as it may go.

        Args:
            now: Seconds on the sweeper's clock.
            head: Newest committed version.
            pinned: Versions that readers say they are still on. One at or under the boundary
                holds nothing, or going back to it would start its time anew.
        """
        above = (version for version in pinned if version > self.boundary)
        pins = {version: self.pins.get(version, now) for version in above}
        held = [version for version, since in pins.items() if now - since <= self.max_pin_s]
        newest = min([head - self.keep, *(version - 1 for version in held)])
        return replace(self, boundary=max(self.boundary, newest), pins=pins)

    def payloads(
        self, listing: Iterable[tuple[int, str]], referenced: AbstractSet[str]
    ) -> tuple[str, ...]:
        """Return the payloads to delete, of (version, key) pairs.

        Args:
            listing: What the store holds.
            referenced: Keys that records above the boundary name. An empty round names its
                parent's payloads, so a payload of an old version may be the newest there is.
        """
        return tuple(
            key for version, key in listing if version <= self.boundary and key not in referenced
        )

    def mail(self, listing: Iterable[tuple[int, str]]) -> tuple[str, ...]:
        """Return the mail to delete, of (base version, key) pairs."""
        return tuple(key for base, key in listing if base < self.boundary)
