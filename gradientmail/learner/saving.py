"""What a restart needs, as one tree for ``state``: training, residuals, optimizer, position."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gradientmail.errors import SettingsError
from gradientmail.learner.fragments import LocalFragment, OnItsWay, Tally
from gradientmail.learner.neighbours import version_here
from gradientmail.learner.parameters import FragmentTensors
from gradientmail.learner.posts import Arrival, Trained
from gradientmail.learner.program import Positioned
from gradientmail.learner.state import State, pack, restore_rng, rng_state, unpack
from gradientmail.learner.training import Training
from gradientmail.protocol.publishing import InFlight
from gradientmail.run import Run, Version


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The user's side of what is saved."""

    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    position: Positioned | None
    device: torch.device

    def save(self, run: Run, learner: str, training: Training, outbox: dict[str, Any]) -> State:
        """Return a snapshot; ``outbox`` is the state of what is on its way."""
        return pack(
            {
                "run": run.name,
                "learner": learner,
                "training": _training_tree(training),
                "outbox": outbox,
                "model": dict(self.model.state_dict()),
                "optimizer": self.optimizer.state_dict() if self.optimizer else None,
                "position": self.position.state_dict() if self.position else None,
                "rng": rng_state(self.device),
            }
        )

    def restore(self, tree: dict[str, Any]) -> None:
        """Put model, optimizer, position and chance back.

        Raises:
            SettingsError: the optimizer is not the one that was saved.
        """
        self.model.load_state_dict(tree["model"])
        if self.optimizer is not None and tree["optimizer"] is not None:
            try:
                self.optimizer.load_state_dict(tree["optimizer"])
            except ValueError as exc:
                raise SettingsError(
                    f"the state directory holds another optimizer's state ({exc}); use the "
                    "optimizer it was saved with, or another --state-dir"
                ) from exc
        if self.position is not None and tree["position"] is not None:
            self.position.load_state_dict(tree["position"])
        restore_rng(tree["rng"], self.device)

    def heal_optimizer(self) -> None:
        """Drop the inner optimizer's state of every parameter for which it is not finite."""
        if self.optimizer is None:
            return
        for parameter, state in list(self.optimizer.state.items()):
            tensors = [value for value in state.values() if isinstance(value, Tensor)]
            if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
                del self.optimizer.state[parameter]


def loaded(state: State, run: Run, learner: str) -> dict[str, Any]:
    """Return the tree of a state that belongs to this run and learner.

    Raises:
        SettingsError: it is another's.
    """
    tree: dict[str, Any] = unpack(state)
    for what, mine in (("run", run.name), ("learner", learner)):
        if tree[what] != mine:
            raise SettingsError(
                f"the state directory belongs to {what} {tree[what]!r}, this is {mine!r}: "
                "give each learner and run a --state-dir of its own"
            )
    return tree


async def arrivals_of(run: Run, tree: dict[str, Any], device: torch.device) -> list[Arrival]:
    """Return where each fragment was when ``tree`` was saved.

    Raises:
        SettingsError: the run does not have one of these versions.
    """
    held = []
    for p, saved in enumerate(tree["training"]["fragments"]):
        version = await version_here(run, p, saved["version"])
        if version is None:
            raise SettingsError(
                f"the state directory is ahead of the run: version {saved['version']} of "
                f"fragment {p} is not committed here. The run was restored from an older "
                "copy, or is another one: use a new --state-dir"
            )
        held.append(Arrival(version=version, params=saved["committed"].to(device)))
    return held


def restore_training(
    training: Training, tree: dict[str, Any], versions: Sequence[Version], device: torch.device
) -> None:
    """Put the training side back: aligned with ``versions``, nothing counted twice or forgotten.

    The model must have been restored; it is not touched.
    """
    saved = tree["training"]
    training.trained = Trained(*saved["trained"])
    training.tally = Tally(*saved.get("tally", ()))  # states of before have none
    training.local.keep(training.step)
    training.fragments = [
        _fragment(one, version, tensors, device)
        for one, version, tensors in zip(
            saved["fragments"], versions, training.tensors, strict=True
        )
    ]
    training.publishing = replace(
        training.publishing,
        versions=tuple(version.number for version in versions),
        anchored_at=tuple(fragment.anchored.steps for fragment in training.fragments),
        last_step=saved["last_step"],
        in_flight=tuple(
            InFlight(round_index=round_index, at_step=at_step)
            for round_index, at_step in saved["in_flight"]
        ),
    )
    training.report()


def _fragment(
    saved: dict[str, Any], version: Version, tensors: FragmentTensors, device: torch.device
) -> LocalFragment:
    committed, snapshot = saved["committed"].to(device), saved["snapshot"]
    return LocalFragment(
        tensors=tensors,
        version=version,
        committed=committed,
        anchor=tensors.rounded(committed),
        anchored=Trained(*saved["anchored"]),
        snapshot=None if snapshot is None else snapshot.to(device),
        snapshot_at=Trained(*saved["snapshot_at"]),
        restored=True,
        posted=[
            OnItsWay(key=key, base=base, trained=Trained(*trained))
            for key, base, trained in saved["posted"]
        ],
    )


def _training_tree(training: Training) -> dict[str, Any]:
    publishing = training.publishing
    return {
        "trained": astuple(training.trained),
        "tally": astuple(training.tally),
        "last_step": publishing.last_step,
        "in_flight": [(one.round_index, one.at_step) for one in publishing.in_flight],
        "fragments": [_fragment_tree(fragment) for fragment in training.fragments],
    }


def _fragment_tree(fragment: LocalFragment) -> dict[str, Any]:
    return {
        "version": fragment.version.number,
        "committed": fragment.committed,
        "anchored": astuple(fragment.anchored),
        "snapshot": fragment.snapshot,
        "snapshot_at": astuple(fragment.snapshot_at),
        "posted": [(one.key, one.base, astuple(one.trained)) for one in fragment.posted],
    }
