"""The device a person named, or a clear word that it is not here."""

import torch

from gradientmail.errors import SettingsError


def device_named(name: str) -> torch.device:
    """Return the torch device ``name``.

    Raises:
        SettingsError: this machine, or this torch, has no such device.
    """
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(f"device = {name!r}: {reason}") from error
