"""Scenarios one after another, each with several seeds, beside twins that nothing happens to."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, Self

from gradientmail.chaos.judging import Verdict, judged
from gradientmail.chaos.noise import LEAST_TWINS, Noise
from gradientmail.chaos.places import (
    Place,
    SkippedError,
    directory_place,
    seaweedfs_server,
    server_place,
    small_disk_place,
    url_place,
)
from gradientmail.chaos.recovery import promised_s
from gradientmail.chaos.scenarios import SCENARIOS, TWIN, Scenario
from gradientmail.chaos.stage import settings_of
from gradientmail.clock import Clock

FILE, S3 = "file", "s3"
TWIN_SEEDS: Final = 1_000_000
"""Twins have seeds of their own from here on."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What undisturbed twins on one store come to.

    Attributes:
        promised_s: T: within it a round closes after a fault.
        wrong: What was wrong with a twin already.
    """

    noise: Noise | None
    promised_s: float
    seconds: float
    wrong: tuple[str, ...] = ()


@dataclass(slots=True)
class Results:
    """All that was seen.

    Attributes:
        baselines: By store.
        played: Verdicts, with the store each was played on.
        skipped: Scenarios that could not be played, and why.
    """

    baselines: dict[str, Baseline] = field(default_factory=dict)
    played: list[tuple[str, Verdict]] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def wrong(self, store: str, verdict: Verdict) -> list[str]:
        """Return all that is wrong with a run, its loss and its recoveries included."""
        noise, promised_s = self.baselines[store].noise, self.baselines[store].promised_s
        late = [s for s in verdict.recoveries.seconds if s > promised_s]
        wrong = [*verdict.wrong]
        if late:
            wrong.append(
                f"a round closed {max(late):.1f} s after a fault, T being {promised_s:.1f} s"
            )
        if noise is not None and verdict.loss is not None and not noise.covers(verdict.loss):
            wrong.append(
                f"its loss is {verdict.loss:.4f}; undisturbed twins come to {noise.mean:.4f}, "
                f"and hardly ever to more than {noise.limit:.4f}"
            )
        return wrong

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not any(self.wrong(store, verdict) for store, verdict in self.played) and not any(
            baseline.wrong for baseline in self.baselines.values()
        )


@dataclass(slots=True)
class Campaign:
    """A context manager that keeps servers, disks and twins for as long as they are needed.

    Args:
        home: A directory for all that is written.
        store: ``file``, ``s3`` (a SeaweedFS of our own) or a URL.
        twins: How many undisturbed runs a store gets; fewer than three judge no loss.
        tell: Called with a line when something has happened.
    """

    home: Path
    store: str
    rounds: int
    twins: int
    clock: Clock
    tell: Callable[[str], None]
    results: Results = field(default_factory=Results)
    _places: dict[str, Place] = field(default_factory=dict)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    async def play(self, names: Sequence[str], seeds: AsyncIterator[int]) -> Results:
        """Play every scenario with every seed."""
        async for seed in seeds:
            for name in names:
                if name not in self.results.skipped:
                    await self._play(name, seed)
        return self.results

    async def _play(self, name: str, seed: int) -> None:
        scenario = SCENARIOS[name]
        store = S3 if scenario.wire else FILE if scenario.disk else self.store
        try:
            place = self._place("disk" if scenario.disk else store)
        except SkippedError as reason:
            self.results.skipped[name] = str(reason)
            self.tell(f"{name}: skipped: {reason}")
            return
        if store not in self.results.baselines:
            self.results.baselines[store] = await self._baseline(store)
        verdict = await self._judged(name, scenario, place, seed)
        self.results.played.append((store, verdict))
        wrong = self.results.wrong(store, verdict)
        state = f"WRONG: {'; '.join(wrong)}" if wrong else "sound"
        self.tell(
            f"{name}, seed {seed}: {verdict.rounds} rounds, {verdict.recoveries.faults} faults, "
            f"{verdict.seconds:.0f} s: {state}"
        )

    async def _baseline(self, store: str) -> Baseline:
        place, seeds = self._place(store), range(TWIN_SEEDS, TWIN_SEEDS + self.twins)
        twins = [await self._judged("twin", TWIN, place, seed) for seed in seeds]
        losses = [twin.loss for twin in twins if twin.loss is not None]
        gaps = [gap for twin in twins for gap in twin.recoveries.gaps]
        promised = promised_s(
            settings_of(seed=0, rounds=self.rounds),
            twins[-1].estimates,
            start_s=median(twin.start_s for twin in twins),
            round_s=max(gaps, default=0.0),
        )
        seconds = median(twin.seconds for twin in twins)
        wrong = tuple(line for twin in twins for line in twin.wrong)
        noise = Noise(losses) if len(losses) >= LEAST_TWINS else None
        self.tell(
            f"{len(twins)} undisturbed twins on {store}: {seconds:.0f} s each, "
            f"T = {promised:.1f} s"
            + (f", loss {noise.mean:.4f} +- {noise.deviation:.4f}" if noise else "")
            + "".join(f"; WRONG: {line}" for line in wrong)
        )
        return Baseline(noise, promised, seconds, wrong)

    async def _judged(self, name: str, scenario: Scenario, place: Place, seed: int) -> Verdict:
        return await judged(
            name, scenario, place, self.home, seed=seed, rounds=self.rounds, clock=self.clock
        )

    def _place(self, kind: str) -> Place:
        if kind not in self._places:
            self._places[kind] = self._opened(kind)
        return self._places[kind]

    def _opened(self, kind: str) -> Place:
        if kind == FILE:
            return self._open.enter_context(directory_place(self.home))
        if kind == "disk":
            return self._open.enter_context(small_disk_place(self.home / "small"))
        if kind != S3:
            return self._open.enter_context(url_place(kind, self.home))
        server = self._open.enter_context(seaweedfs_server(self.home))
        return self._open.enter_context(server_place(server, self.home))
