"""What the training side of a learner needs of whatever exchanges for it."""

from typing import Protocol

from torch import Tensor

from gradientmail.learner.posts import Arrival, Draft, Progress


class Wire(Protocol):
    """What the training side needs of an exchange."""

    @property
    def calling(self) -> frozenset[int]:
        """Rounds whose grace window is open."""
        ...

    @property
    def asked(self) -> frozenset[int] | None:
        """Rounds that ask for this learner; None: all do."""
        ...

    progress: Progress

    def take(self) -> tuple[list[Arrival], list[tuple[str, str]]]:
        """Return what arrived since the last call, and (key, reason) of drafts refused."""
        ...

    def post(self, draft: Draft) -> None:
        """Send a contribution on its way."""
        ...

    def give_back(self, fragment: int, key: str) -> None:
        """Add an unused contribution to the residual."""
        ...

    def owe(self, fragment: int, vector: Tensor) -> None:
        """Send a vector with the next contribution."""
        ...

    def forget(self, key: str) -> None:
        """A commit has spoken of a contribution."""
        ...

    def start_over(self, fragment: int) -> None:
        """Drop the residual: another self has sent it."""
        ...
