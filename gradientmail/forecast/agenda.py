"""The agenda: what happens next, in virtual time; equal times keep the order of noting."""

import heapq
from collections.abc import Callable
from typing import Any

Act = Callable[..., object]


class Agenda:
    """Events on a heap.

    Attributes:
        now: Virtual seconds; moves only from one event to the next.
        events: How many have happened.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._stopped = False
        self._heap: list[tuple[float, int, Act, tuple[Any, ...]]] = []
        self._noted = 0

    def at(self, instant_s: float, act: Act, *arguments: object) -> None:
        """Note that ``act(*arguments)`` happens at ``instant_s``, or at once if that is over."""
        self._noted += 1
        heapq.heappush(self._heap, (max(instant_s, self.now), self._noted, act, arguments))

    def stop(self) -> None:
        """Let nothing more happen."""
        self._stopped = True

    def run(self, until_s: float) -> None:
        """Let everything happen until ``until_s``, or until it is stopped."""
        heap = self._heap
        while heap and heap[0][0] <= until_s and not self._stopped:
            self.now, _, act, arguments = heapq.heappop(heap)
            self.events += 1
            act(*arguments)
        if not self._stopped:
            self.now = max(self.now, until_s)
