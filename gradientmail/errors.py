"""Every exception gradientmail raises on purpose, grouped by what the caller must do."""

from collections.abc import Sequence


class GradientMailError(Exception):
    """Base of every error gradientmail raises on purpose."""


# -- change what you typed ------------------------------------------------------------------


class SettingsError(GradientMailError):
    """A setting, flag or argument is wrong; the message says what to write instead."""


class TooFewError(SettingsError):
    """A round has fewer contributions than its merging rule needs."""


class RunExistsError(GradientMailError):
    """``init`` found a run under this URL: choose another URL, or join the run that is there."""


class RunNotFoundError(GradientMailError):
    """There is no run under this URL."""


class ContractError(GradientMailError):
    """The model here is not the run's model. Carries every difference, one line each."""

    def __init__(self, differences: Sequence[str]) -> None:
        lines = "".join(f"\n  - {line}" for line in differences)
        super().__init__(f"this model differs from the run's; nothing was written:{lines}")
        self.differences = tuple(differences)


class NotJoinedError(GradientMailError):
    """A learner has not joined the run: not entered, or asked to stop before. Nothing written."""


# -- look at the store ----------------------------------------------------------------------


class StoreError(GradientMailError):
    """Base of what a store raises."""


class StoreUnavailableError(StoreError):
    """UNKNOWN: the operation may or may not have happened. The same call may be made again."""


class StoreAccessError(StoreError):
    """The store refuses us: credentials, permissions, bucket or address. Retrying cannot help."""


class StoreFullError(StoreError):
    """The store has no room left. Nothing became visible."""


class StoreUnfitError(StoreError):
    """The store breaks a promise the protocol needs, so no run may be created on it."""


# -- the bytes are not what they claim to be ------------------------------------------------


class RecordError(GradientMailError):
    """Bytes in the store break the protocol: stop and repair. Carries the object's ``key``."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{reason}. key={key!r}")
        self.key = key
        self.reason = reason


class FormatVersionError(RecordError):
    """A record of a format version this gradientmail does not read: upgrade or downgrade."""


class PayloadError(GradientMailError):
    """Tensor bytes are not the payload they should be. The message is the reason, one line."""


class NonFiniteError(PayloadError):
    """NaN or infinity where a finite number must be."""


# -- look at this machine -------------------------------------------------------------------


class StateNotSavedError(GradientMailError):
    """A learner's local state was not saved; the one before is intact and training may go on."""
