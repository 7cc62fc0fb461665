"""One forecast: a fleet and settings in, what will have happened out."""

import random
from collections.abc import Mapping

from gradientmail.algorithm import algorithm_of
from gradientmail.config import RunSettings
from gradientmail.errors import SettingsError
from gradientmail.forecast.agenda import Agenda
from gradientmail.forecast.closer import Closer
from gradientmail.forecast.fleet import HOUR_S, Fleet, Learners
from gradientmail.forecast.ground import Ground
from gradientmail.forecast.learner import Learner
from gradientmail.forecast.local import Mail, State
from gradientmail.forecast.reading import tensors_of
from gradientmail.forecast.results import Forecast, results_of
from gradientmail.forecast.sizes import sizes_of
from gradientmail.forecast.trace import Trace
from gradientmail.forecast.watch import Watch

MODELLED: Mapping[str, object] = {
    "exchange": "closer",
    "local_steps": "fixed",
    "selection": "all",
    "global_batch": None,
    "modules": {},
}
"""Settings of which only this value is forecast."""

ENDLESS = 1 << 53
LONGEST_H = 10 * 365 * 24.0
"""Where only a number of rounds is asked for, and the fleet never gets there."""


def forecast(
    fleet: Fleet, settings: RunSettings, *, name: str = "", trace: Trace | None = None
) -> Forecast:
    """Return what ``fleet`` does in its hours with ``settings``; equal arguments, equal results.

    Args:
        fleet: Who is there, and for how long to look ahead.
        settings: Of the run.
        name: What the settings are called, such as the preset's name.
        trace: Takes what a picture is drawn from.

    Raises:
        SettingsError: the settings contradict each other, or the model.
    """
    return World(fleet, settings, trace or Trace()).run(name)


def member_names(group: Learners) -> list[str]:
    """Return the names of a group's members.

    >>> member_names(Learners(name="spot", count=2, step_s=1.0))
    ['spot-0', 'spot-1']
    """
    if group.count == 1:
        return [group.name]
    width = len(str(group.count - 1))
    return [f"{group.name}-{index:0{width}d}" for index in range(group.count)]


class World:
    """The processes of a forecast."""

    def __init__(self, fleet: Fleet, settings: RunSettings, trace: Trace) -> None:
        _require_modelled(settings)
        self._fleet, self._settings = fleet, settings
        algorithm = algorithm_of(settings)
        self.ground = Ground(
            agenda=Agenda(),
            settings=settings,
            algorithm=algorithm,
            sizes=sizes_of(algorithm, tensors_of(fleet.model)),
            latency_s=fleet.store.latency_s,
            rng=random.Random(fleet.seed),  # noqa: S311 - it draws interruptions
            trace=trace,
            last_round=min(fleet.rounds or ENDLESS, settings.stop_after_rounds or ENDLESS),
        )
        self.learners = [
            Learner(
                self.ground,
                group,
                name,
                chance=random.Random(f"{fleet.seed}/{name}"),  # noqa: S311
                post=self._post,
                changed=self._stir,
            )
            for group in fleet.learners
            for name in member_names(group)
        ]
        self.watch = Watch(self.ground, self.learners, changed=self._live_changed)
        self.closer = Closer(self.ground, fleet.closer, self.watch, tell=self._tell)

    def run(self, name: str) -> Forecast:
        """Let it happen, and count."""
        agenda, sizes = self.ground.agenda, self.ground.sizes
        first = sizes.manifest + sum(fragment.params for fragment in sizes.fragments)
        self.ground.stored.add(first, 0.0)
        self.closer.start()
        self.watch.start()
        for learner in self.learners:
            agenda.at(learner.group.joins_h * HOUR_S, learner.join)
            if learner.group.leaves_h is not None:
                agenda.at(learner.group.leaves_h * HOUR_S, self._leave, learner)
        until_s = (self._fleet.hours or LONGEST_H) * HOUR_S
        agenda.run(until_s)
        for learner in self.learners:
            learner.end()
        self.closer.end()
        self.ground.stored.advance(agenda.now)
        return results_of(
            name=name,
            fleet=self._fleet,
            ground=self.ground,
            learners=self.learners,
            closer=self.closer,
        )

    def _leave(self, learner: Learner) -> None:
        if learner.state is not State.GONE:
            learner.leave()

    # -- who tells whom ----------------------------------------------------------------------

    def _post(self, mail: Mail) -> None:
        self.closer.post(mail)

    def _stir(self) -> None:
        self.watch.stir()

    def _live_changed(self) -> None:
        self.closer.live_changed()

    def _tell(self) -> None:
        for learner in self.learners:
            learner.hear()


def _require_modelled(settings: RunSettings) -> None:
    """Refuse what would give wrong numbers without a sign of it."""
    for name, modelled in MODELLED.items():
        value = getattr(settings, name)
        if value != modelled:
            raise SettingsError(
                f"{name} = {value!r} is not forecast yet, only {name} = {modelled!r}"
            )
