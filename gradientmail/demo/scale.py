"""How large a demo is: what is trained, by whom, for how long, and when what is killed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from gradientmail.demo.story import CLOSER

SHARES: Mapping[str, float] = MappingProxyType({"fast": 1.0, "slow-1": 1 / 4.5, "slow-2": 1 / 4.5})

SETTINGS: Mapping[str, object] = MappingProxyType(
    {
        "algorithm": "decoupled-diloco",
        "sync_every": 80,
        "fragments": 2,
        "in_flight": 2,
        "outer": "sgd",
        "outer_lr": 1.0,
        "grace_s": 1.0,
        "poll_s": 0.3,
        "lease_s": 4.0,
        "presence_s": 8.0,
    }
)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The defaults are the demo that people see; tests have a smaller one.

    Attributes:
        program: What is trained; it must have ``evaluate``.
        settings: Of the run.
        shares: Learners by the share of its speed that each is throttled to, the fastest first.
        seconds: How long the run trains, from the first learner's joining.
        kills: Which process gets a SIGKILL after which share of ``seconds``, in this order.
        away_s: How long a killed process stays away.
        evaluate_every_s: Seconds between two held-out losses.
        save_every_s: Seconds between two saves of a learner's state.
        sampled: Bytes of text to draw from the model.
    """

    program: str = "gradientmail.demo.program:program"
    settings: Mapping[str, object] = field(default_factory=lambda: SETTINGS)
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    seconds: float = 100.0
    kills: Sequence[tuple[str, float]] = ((CLOSER, 0.3), ("slow-1", 0.6))
    away_s: float = 1.0
    evaluate_every_s: float = 12.0
    save_every_s: float = 10.0
    sampled: int = 300

    def write_config(self, path: Path) -> None:
        """Write the settings as a ``run.toml``."""
        lines = [f"{key} = {_toml(value)}" for key, value in self.settings.items()]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()
