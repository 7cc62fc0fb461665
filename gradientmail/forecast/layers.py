"""How fast machines train that reduce layer by layer over one line, as papers simulate it.

Not our protocol, which goes through a store: the model behind published tables, so that what we
say of bandwidth can be held against them. A step is a chain of forward passes, one a layer, and
backward passes, two a layer but for the first: by activations and by parameters. The reduction of
a layer may begin once its gradient is there; reductions share one line, one after another; the
layer's next forward pass (or the one ``overlap_steps`` later) waits for it.

Source: Streaming DiLoCo (arXiv 2501.18512), section 3.1 and figure 3. How a step divides into
passes is not said there; here each kind of pass takes a third.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gradientmail.protocol.schedule import RoundSchedule

PASSES = 3
"""Kinds of passes that a step is divided into evenly."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Steps of a model of equal layers.

    Attributes:
        layers: How many.
        step_s: Seconds of a step without any communication.
        bits: What one reduction of all layers sends.
        schedule: When each fragment is reduced; fragment p holds layers p, p + P, p + 2P and so
            on. None: all layers at every step, which is data parallel training.
    """

    layers: int
    step_s: float
    bits: float
    schedule: RoundSchedule | None

    def utilisation(self, bits_s: float, *, steps: int) -> float:
        """Return the share of the time in passes, of ``steps`` steps over a line of ``bits_s``."""
        pass_s = self.step_s / PASSES / self.layers
        reduce_s = self.bits / self.layers / bits_s
        overlap = self.schedule.overlap_steps or 0 if self.schedule else 0
        due: dict[tuple[int, int], float] = {}
        now = line_free_at = 0.0
        for step, layers in zip(range(1, steps + 1), self._reduced(), strict=False):
            for layer in range(self.layers):
                now = max(now, due.pop((step, layer), now)) + pass_s
            for layer in reversed(range(self.layers)):
                now += pass_s
                if layer in layers:
                    line_free_at = max(line_free_at, now) + reduce_s
                    due[step + 1 + overlap, layer] = line_free_at
                now += pass_s if layer else 0.0
        return steps * (PASSES * self.layers - 1) * pass_s / now

    def _reduced(self) -> Iterable[Collection[int]]:
        """Yield the layers that are reduced after each step."""
        if self.schedule is None:
            while True:
                yield range(self.layers)
        fragments, step, round_index = self.schedule.fragments, 0, 0
        while True:
            step += 1
            if self.schedule.step_of(round_index) == step:
                yield range(self.schedule.fragment_of(round_index), self.layers, fragments)
                round_index += 1
            else:
                yield ()


def least_index(training: Training, target: float, grid: list[float], *, steps: int) -> int:
    """Return the first index of the rising ``grid`` of bits a second that reaches ``target``."""
    low, high = 0, len(grid)
    while low < high:
        middle = (low + high) // 2
        if training.utilisation(grid[middle], steps=steps) >= target:
            high = middle
        else:
            low = middle + 1
    return low
