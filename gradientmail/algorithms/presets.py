"""Presets: the settings each paper names, by the name ``algorithm`` takes in ``run.toml``.

What a paper leaves open (poll intervals, leases) keeps the default of ``RunSettings``. The outer
step of DiLoCo and its kin is what docs/results.md found best, not the papers' momentum of .9,
which wants hundreds of versions (docs/decisions/0024-outer-steps.md).
"""

from collections.abc import Mapping
from typing import Any, Final

from gradientmail.config import RunSettings, nearest
from gradientmail.errors import SettingsError

DEFAULT: Final = RunSettings().algorithm
"""What suits scattered machines: no one waits for anyone."""

_AVERAGED: Final[Mapping[str, Any]] = {
    "fragments": 1,
    "in_flight": 1,
    "overlap_steps": 0,
    "merge": "weighted-mean",
    "weights": "tokens",
    "outer": "sgd",
    "outer_lr": 1.0,
    "alignment": "overwrite",
    "uplink": "F32",
    "grace_s": None,
}
"""Parameters averaged by tokens while everyone waits."""

_FEDERATED: Final[Mapping[str, Any]] = {**_AVERAGED, "sync_every": 100, "weights": "samples"}
"""Every example counts the same, whoever has it."""

_AMONG_NEIGHBOURS: Final[Mapping[str, Any]] = {"exchange": "gossip", "alignment": "carry"}

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # DiLoCo (arXiv 2311.08105): H = 500, Nesterov on the mean ((.7, .9) there); all wait for all.
    "diloco": {
        "sync_every": 500,
        "fragments": 1,
        "in_flight": 1,
        "overlap_steps": 0,
        "merge": "weighted-mean",
        "weights": "uniform",
        "outer": "nesterov",
        "outer_lr": 0.5,
        "outer_settings": {"momentum": 0.5},
        "alignment": "overwrite",
        "uplink": "F32",
        "grace_s": None,
    },
    # Streaming DiLoCo (arXiv 2501.18512), 1B: H = 30, strided fragments of 3 of 24 layers,
    # alpha .5, tau 1, Nesterov ((.4, .9) there), 4 bits up (E2M1 here; the paper's E3M0 is within
    # its error).
    "streaming-diloco": {
        "sync_every": 30,
        "fragments": 8,
        "in_flight": 1,
        "overlap_steps": 1,
        "plan": "strided",
        "merge": "weighted-mean",
        "weights": "uniform",
        "outer": "nesterov",
        "outer_lr": 0.5,
        "outer_settings": {"momentum": 0.5},
        "alignment": "blend",
        "mixing": 0.5,
        "uplink": "F4",
        "grace_s": None,
    },
    # Decoupled DiLoCo (arXiv 2604.21428): quorum 1 and a grace window, tokens^2/steps, radial-
    # directional mean. Ours: carry, so that no step is lost, and 8 bits both ways. That mean is as
    # long as its contributions, so half the rate is as long a step as that of the others.
    "decoupled-diloco": {
        "sync_every": 100,
        "fragments": 4,
        "in_flight": 2,
        "overlap_steps": None,
        "merge": "radial-directional-mean",
        "weights": "tokens2-per-step",
        "outer": "nesterov",
        "outer_lr": 0.25,
        "outer_settings": {"momentum": 0.5},
        "alignment": "carry",
        "uplink": "I8",
        "downlink": "I8",
        "quorum": 1,
        "grace_s": 3.0,
    },
    # Asynchronous Local-SGD (arXiv 2401.09135): each arrival is a version, delayed Nesterov, and
    # fewer steps for who is slower. Ours: carry, so that no steps are against old parameters.
    "async-local-sgd": {
        "sync_every": 50,
        "local_steps": "dynamic",
        "fragments": 1,
        "in_flight": 1,
        "overlap_steps": 0,
        "merge": "weighted-mean",
        "weights": "uniform",
        "outer": "delayed-nesterov",
        "outer_lr": 0.5,
        "outer_settings": {"momentum": 0.5, "arrivals": 4},
        "alignment": "carry",
        "uplink": "F32",
        "quorum": 1,
        "grace_s": 0.0,
    },
    # Local SGD (arXiv 1805.09767): plain averaging of parameters.
    "local-sgd": {
        "sync_every": 8,
        "fragments": 1,
        "in_flight": 1,
        "overlap_steps": 0,
        "merge": "weighted-mean",
        "weights": "uniform",
        "outer": "sgd",
        "outer_lr": 1.0,
        "alignment": "overwrite",
        "uplink": "F32",
        "grace_s": None,
    },
    # Data parallel: after each step everyone's parameters are averaged by tokens, which is
    # averaging gradients where the inner optimizer is SGD. Every live learner is waited for.
    "all-reduce": {**_AVERAGED, "sync_every": 1, "clip_ratio": None},
    # Everyone for itself: what the run holds is where its learners begin.
    "local": {"exchange": "nobody", "overlap_steps": None},
    # D-PSGD (arXiv 1705.09056) with local steps: neighbours average their parameters.
    "gossip": {**_AVERAGED, "sync_every": 50, **_AMONG_NEIGHBOURS},
    # NoLoCo (arXiv 2506.10911): random pairs and an outer momentum step of each learner's own.
    "noloco": {
        **_AVERAGED,
        "sync_every": 50,
        **_AMONG_NEIGHBOURS,
        "topology": "random-pairs",
        "gossip": "noloco",
    },
    # FedAvg (arXiv 1602.05629).
    "fedavg": _FEDERATED,
    # FedProx (arXiv 1812.06127).
    "fedprox": {**_FEDERATED, "proximal": 0.01},
    # FedAvgM (arXiv 1909.06335): momentum .9 on the server.
    "fedavgm": {
        **_FEDERATED,
        "outer": "heavy-ball",
        "outer_settings": {"momentum": 0.9},
    },
    # Adaptive federated optimization (arXiv 2003.00295): beta1 .9, beta2 .99, tau 1e-3.
    "fedadagrad": {**_FEDERATED, "outer": "adagrad", "outer_lr": 0.1},
    "fedadam": {**_FEDERATED, "outer": "adam", "outer_lr": 0.1},
    "fedyogi": {**_FEDERATED, "outer": "yogi", "outer_lr": 0.1},
}


def preset(name: str) -> Mapping[str, Any]:
    """Return the settings of preset ``name``.

    Raises:
        SettingsError: there is none of that name.
    """
    if name not in PRESETS:
        raise SettingsError(f"unknown algorithm {name!r}{nearest(name, PRESETS)}")
    return {"algorithm": name, **PRESETS[name]}
