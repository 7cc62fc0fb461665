"""Small fleets of which everything can be worked out by hand."""

from typing import Any

from gradientmail.config import RunSettings
from gradientmail.forecast.fleet import Closers, Fleet, Learners, Model, Prices, StoreSpec
from gradientmail.forecast.results import Forecast
from gradientmail.forecast.trace import Trace
from gradientmail.forecast.world import forecast

TILE = 4096
WIDE = 1e9


def one(name: str = "one", **fields: Any) -> Learners:
    """A learner of one second a step on a wide line."""
    given = {"step_s": 1.0, "up_mbit_s": WIDE, "down_mbit_s": WIDE, **fields}
    return Learners(name=name, **given)


def fleet_with(*learners: Learners, **fields: Any) -> Fleet:
    """A store without latency, and a closer that takes no time, unless said otherwise."""
    closer = {"up_mbit_s": WIDE, "down_mbit_s": WIDE, "numbers_per_s": 1e15}
    closer.update(fields.pop("closer", {}))
    return Fleet(
        **{
            "model": Model(parameters=TILE, blocks=1),
            "learners": learners or (one(),),
            "closer": Closers(**closer),
            "store": StoreSpec(latency_s=fields.pop("latency_s", 0.0), prices=Prices()),
            **fields,
        }
    )


def diloco(**settings: Any) -> RunSettings:
    """Everybody waits for everybody."""
    given = {"sync_every": 10, "fragments": 1, "overlap_steps": 0, "poll_s": 1.0}
    return RunSettings(**{**given, **settings})


def decoupled(**settings: Any) -> RunSettings:
    """Nobody waits."""
    given = {
        "sync_every": 20,
        "fragments": 1,
        "overlap_steps": None,
        "grace_s": 20.0,
        "alignment": "carry",
        "uplink": "I8",
    }
    return RunSettings(**{**given, **settings})


def look_ahead(fleet: Fleet, settings: RunSettings, trace: Trace | None = None) -> Forecast:
    """Forecast."""
    return forecast(fleet, settings, name="it", trace=trace)
