"""The demo's result as numbers: what was learned, by whom, for how many bytes."""

import msgspec

from gradientmail.demo.story import Story

FLOAT32_BYTES = 4
WAYS = 2
"""Up and down: a synchronous step sends its gradient and receives the mean of all."""


class LearnerTotals(msgspec.Struct, frozen=True, kw_only=True):
    """One learner over the run, its restarts included.

    Attributes:
        steps: Inner steps; what it had taken since its last save when it was killed is left out.
        rounds: Rounds it contributed to.
        up_bytes: Given to the store; like ``requests`` summed over its incarnations, each as far
            as its last sign of life told.
        every_step_bytes: What exchanging float32 gradients each of these steps would move, both
            ways together.
    """

    name: str
    share: float
    steps: int
    tokens: int
    rounds: int
    up_bytes: int
    down_bytes: int
    requests: int
    every_step_bytes: int

    @property
    def times_less(self) -> float:
        """How many times fewer bytes were moved than by gradients every step."""
        return self.every_step_bytes / max(1, self.up_bytes + self.down_bytes)


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out losses in nats per byte, after the same time."""

    start: float
    together: float
    alone: float


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the kill of ``name`` to its first new effect; None: it had none."""

    name: str
    at_s: float
    lost_s: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What ``summary.json`` holds.

    Attributes:
        parameters: Numbers exchanged.
        trained_s: Seconds from the first learner's joining to the last commit; as long trained the
            fastest alone.
        empty: Rounds without a contribution.
    """

    run: str
    parameters: int
    trained_s: float
    rounds: int
    empty: int
    loss: Loss
    alone_steps: int
    learners: tuple[LearnerTotals, ...]
    lost: tuple[Lost, ...]


def summarized(story: Story, *, run: str, parameters: int) -> Summary:
    """Return the numbers of a demo that is over."""
    return Summary(
        run=run,
        parameters=parameters,
        trained_s=story.trained_s,
        rounds=len(story.commits),
        empty=sum(commit.empty for commit in story.commits),
        loss=Loss(
            start=story.alone[0].loss,
            together=story.together[-1].loss,
            alone=story.alone[-1].loss,
        ),
        alone_steps=story.progress_alone.steps,
        learners=tuple(_totals(story, name, parameters) for name in story.shares),
        lost=tuple(_lost(story)),
    )


def _totals(story: Story, name: str, parameters: int) -> LearnerTotals:
    last, traffic = list(story.presences[name].values())[-1], story.traffic(name)
    return LearnerTotals(
        name=name,
        share=story.shares[name],
        steps=last.steps,
        tokens=last.tokens,
        rounds=sum(
            any(one.learner == name for one in commit.participants) for commit in story.commits
        ),
        up_bytes=traffic.up_bytes,
        down_bytes=traffic.down_bytes,
        requests=traffic.requests,
        every_step_bytes=WAYS * FLOAT32_BYTES * parameters * last.steps,
    )


def _lost(story: Story) -> list[Lost]:
    times = [(kill, story.back_at(kill)) for kill in story.kills]
    return [
        Lost(
            name=kill.name,
            at_s=story.at_s(kill.at),
            lost_s=None if back_at is None else back_at - kill.at,
        )
        for kill, back_at in times
    ]
